import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.recipes import processes
from tests.recipes.processes import Square

from recipes import arms

REPO = Path(__file__).resolve().parents[2]
ALL = 20


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "data").write_text("1000")
    return ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]


def results(folder: Path) -> dict[int, dict]:
    found = [json.loads(path.read_text()) for path in folder.glob("*.json") if path.stem != "summary"]
    return {result["run"]["x"]: result for result in found}


def begun(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """The recipe in a process of its own, with three results stored."""
    command = [sys.executable, "-m", "tests.recipes.processes", *words]
    process = subprocess.Popen(
        command,
        cwd=REPO,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # pytest may itself have been started in the background, where a shell has SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 120
    while len(results(folder)) < 3:
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"


def test_killed_and_resumed_it_computes_what_is_missing_and_nothing_else(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    process = begun(words, out)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    workers = {result["process"] for result in results(out).values()}
    deadline = time.monotonic() + 30
    while not all(gone(pid) for pid in workers):  # they end with their parent
        assert time.monotonic() < deadline
        time.sleep(0.01)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert 3 <= len(before) < ALL
    assert not (out / "summary.json").exists()

    assert processes.main(words) == 0
    assert f"{len(before)} of {ALL} runs are stored" in capsys.readouterr().out.replace("\n", "")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {x: r["y"] for x, r in results(out).items()} == {x: x**2 + 1000 for x in range(ALL)}
    assert json.loads((out / "summary.json").read_text())["facts"]["runs"] == ALL
    assert not list(out.glob("*.partial")) or len(before) < ALL

    assert processes.main(words) == 0  # nothing left to do: only the table
    printed = capsys.readouterr().out
    assert f"{ALL} of {ALL} runs are stored" in printed.replace("\n", "")
    assert " ".join(str(x**2 + 1000) for x in range(ALL)) in printed


def test_interrupted_it_stores_the_runs_under_way_and_says_how_to_go_on(words: list[str], tmp_path: Path) -> None:
    process = begun(words, tmp_path / "out")
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in printed.replace("\n", "")
    assert 3 <= len(results(tmp_path / "out")) < ALL


def test_only_the_very_same_run_is_taken_from_the_store(tmp_path: Path) -> None:
    run = Square(3)
    arms.store(run, {"y": 9}, tmp_path)
    assert arms.stored(Square(3), tmp_path) == {"run": {"x": 3, "seed": 0}, "y": 9}
    assert arms.stored(replace(run, seed=1), tmp_path) is None
    # A file under the key of a run that it does not describe, as a key of another version would leave.
    (tmp_path / f"{run.key}.json").write_text(json.dumps({"run": {"x": 3}, "y": 8}))
    assert arms.stored(run, tmp_path) is None


def test_a_run_that_fails_ends_the_recipe_with_its_error(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ninety-nine"):
        processes.main([*words, "--x", "1", "99", "2"])
    assert 99 not in results(tmp_path / "out")


def test_missing_data_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no data at .*nothing\.npz. Give --data"):
        arms.require_data(tmp_path / "nothing.npz")


def test_interval_is_students() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 5))
    low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
    middle, half = arms.paired(dict(enumerate(a)), {**dict(enumerate(b)), 7: 5.0})
    assert (middle - half, middle + half) == pytest.approx((low, high))
