import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.runs.squares import compute, plan, squares

from reglet.runs import Finished, Run, execute, store, stored

REPO = Path(__file__).resolve().parents[2]
ALL = 20


def begun(folder: Path) -> subprocess.Popen[str]:
    """The experiment in a process of its own, with three results stored."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.runs.squares", str(folder)],
        cwd=REPO,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # pytest may itself have been started in the background, where a shell has SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 120
    while len(found(folder)) < 3:
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def found(folder: Path) -> dict[int, dict]:
    results = [json.loads(path.read_text()) for path in (folder / "out").glob("*.json")]
    return {result["run"]["settings"]["x"]: result["scores"] for result in results}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"


def test_killed_its_workers_end_too_and_what_they_stored_is_not_computed_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_text("1000")
    process = begun(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    workers = {result["process"] for result in found(tmp_path).values()}
    deadline = time.monotonic() + 30
    while not all(gone(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.json")}
    assert 3 <= len(before) < ALL

    results = execute(plan(list(range(ALL)), sleep=0.1), compute, load=lambda: 1000, out=tmp_path / "out", jobs=1)
    assert [r.scores["y"] for r in results] == [x**2 + 1000 for x in range(ALL)]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    printed = capfd.readouterr().err.replace("\n", "")
    assert f"{len(before)} of {ALL} runs are stored" in printed
    assert printed.count("square, seed 0: y ") == ALL - len(before)


def test_interrupted_it_stores_the_runs_under_way_and_reads_the_data_once_per_worker(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("1000")
    process = begun(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert "the runs under way are finished and stored first" in printed.replace("\n", "")
    assert "KeyboardInterrupt" in printed
    assert 3 <= len(found(tmp_path)) < ALL
    readers = (tmp_path / "reads").read_text().split()
    assert len(readers) == len(set(readers)) <= 2, "a busy machine starts the second worker late"


def test_one_job_is_computed_here_and_fails_with_the_error_of_the_run(tmp_path: Path) -> None:
    results = squares(tmp_path, [1, 2], jobs=1)
    assert {r.scores["process"] for r in results} == {os.getpid()}
    assert results[0].about.keys() >= {"seconds", "cpu_seconds", "torch", "date"}
    with pytest.raises(ValueError, match="ninety-nine"):
        squares(tmp_path, [3, 99, 4], jobs=1)
    assert found(tmp_path).keys() == {1, 2, 3}


def test_only_the_very_same_run_is_taken_from_the_store(tmp_path: Path) -> None:
    run = Run("a", 3, "left", {"lr": 0.1, "sizes": (1, 2)})
    store(Finished(run, {"y": 9.0}, {}), tmp_path)
    assert stored(Run("a", 3, "left", {"sizes": (1, 2), "lr": 0.1}), tmp_path) == Finished(run, {"y": 9.0}, {})
    others = [
        Run("b", 3, "left", run.settings),
        Run("a", 4, "left", run.settings),
        Run("a", 3, "right", run.settings),
        Run("a", 3, "left", {"lr": 0.1}),
    ]
    assert [stored(other, tmp_path) for other in others] == [None] * 4
    # A file under the key of a run that it does not describe, as a key of another version would leave.
    (tmp_path / f"{run.key}.json").write_text(json.dumps({"run": {"arm": "a"}, "scores": {"y": 8.0}, "about": {}}))
    assert stored(run, tmp_path) is None


def test_a_number_of_jobs_is_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        squares(tmp_path, [1], jobs=0)
