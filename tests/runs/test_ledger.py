"""Runs come back from a file of the repository as they were, by their digest and nothing else."""

import json
from pathlib import Path

import pytest

from reglet.runs import Finished, Run, restore, stored, write_ledger
from reglet.runs.ledger import read_ledger

RUNS = [Run("a", seed, "x", {"lr": 0.1}) for seed in (1, 2)]
ABOUT = {"commit": "abc", "date": "2026-11-18", "seconds": 1.23456789}


def test_there_and_back(tmp_path: Path) -> None:
    path, out = tmp_path / "runs/a.jsonl", tmp_path / "out"
    write_ledger(path, [Finished(run, {"test": 100 / 3, "says": "so"}, ABOUT) for run in RUNS])
    assert len(path.read_text().splitlines()) == 2
    assert restore(path, RUNS, out) == 2
    found = stored(RUNS[0], out)
    assert found is not None
    assert found.scores == {"test": 33.3333, "says": "so"}
    assert found.about["seconds"] == 1.23457
    assert restore(path, RUNS, out) == 0, "what is there stays as it is"
    write_ledger(path, [Finished(RUNS[0], {"test": 2.0}, ABOUT), Finished(Run("b", 1), {}, ABOUT)])
    assert [row["scores"].get("test") for row in read_ledger(path).values()] == [2.0, 33.3333, None]
    changed = Run("a", 1, "x", {"lr": 0.2})
    assert restore(path, [changed], out) == 0
    assert stored(changed, out) is None, "another design computes its own"


def test_a_line_that_says_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_ledger(path, [Finished(RUNS[0], {}, {})])
    path.write_text(json.dumps({**json.loads(path.read_text()), "arm": "b"}) + "\n")
    with pytest.raises(ValueError, match=r"is of the arm 'b', but the run is 'a, x, seed 1'"):
        restore(path, RUNS, tmp_path / "out")


def test_no_file_is_no_run(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "none.jsonl") == {}
