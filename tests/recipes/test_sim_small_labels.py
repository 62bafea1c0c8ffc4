import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from recipes import sim_small_labels as recipe

REPO = Path(__file__).resolve().parents[2]
SMALL = ["--labels", "40", "80", "--seeds", "2", "--steps", "6", "--batch", "20", "--dose", "0.5", "--workers", "2"]
RUNS = 2 * (8 + 1 + 4)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Colours that depend on the class, under noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(500) % 10
    images = rng.integers(0, 128, (500, 16, 16, 3)) + rng.integers(0, 128, (10, 1, 1, 3))[labels]
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    np.savez(path, images=images.astype(np.uint8), labels=labels.astype(np.uint8), split=np.arange(500) // 400)
    return path


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the recipe's workers, so that results can be compared bit by bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def stored(folder: Path) -> dict[str, dict]:
    """Results by key, without what may differ between two computations of the same."""
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json") if path.stem != "summary"}
    loose = ("seconds", "cpu_seconds", "date", "commit")
    return {key: {k: v for k, v in result.items() if k not in loose} for key, result in found.items()}


def test_killed_and_resumed_ends_as_if_it_had_not_been(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "killed"
    arguments = ["--data", str(data), "--out", str(out), *SMALL]
    command = [sys.executable, "-m", "recipes.sim_small_labels", *arguments]
    process = subprocess.Popen(command, cwd=REPO, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while len(stored(out)) < 3:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert 3 <= len(before) < RUNS
    assert not (out / "summary.json").exists()

    assert recipe.main(arguments) == 0
    printed = capsys.readouterr().out
    assert f"{len(before)} of {RUNS} runs are stored" in printed
    assert {path: path.stat().st_mtime_ns for path in before} == before
    results = stored(out)
    assert len(results) == RUNS

    whole = tmp_path / "whole"
    assert recipe.main(["--data", str(data), "--out", str(whole), *SMALL]) == 0
    assert stored(whole) == results
    summary = json.loads((out / "summary.json").read_text())
    assert summary["facts"]["runs"] == RUNS
    assert len(summary["rows"]) == RUNS / 2
    assert all(row["seeds"] == 2 and bool(row["difference"]) == bool(row["weight"]) for row in summary["rows"])
    assert "| 80 | mixup | 0.005 |" in (out / "summary.md").read_text()

    assert recipe.main(arguments) == 0  # nothing left to do: only the table
    assert f"{RUNS} of {RUNS} runs are stored" in capsys.readouterr().out


def test_other_settings_are_other_runs() -> None:
    run = recipe.Run("base", 40, 0, 0.0, "digest")
    assert run.key == replace(run).key
    others = [replace(run, **{k: v}) for k, v in {"seed": 1, "weight": 1e-3, "steps": 7, "data": "other"}.items()]
    assert len({run.key, *(other.key for other in others)}) == 5


@pytest.mark.parametrize("arm", recipe.ARMS)
def test_arms_of_a_seed_are_paired(data: Path, arm: str) -> None:
    """SIM with a vanishing weight is no SIM, bit by bit: same labels, start, batches, crops and mixing."""
    run = recipe.Run(arm, 40, 3, 0.0, "digest", steps=5, batch=20)
    images = recipe.load(data)
    without, with_sim, other = (
        recipe.train(r, images) for r in (run, replace(run, weight=1e-30), replace(run, weight=0.5))
    )
    for measure in ("test", "unused", "loss", "jitter", "gradient", "retained"):
        assert without[measure] == with_sim[measure]
        if measure in ("loss", "gradient", "retained"):
            assert other[measure] != without[measure]
    assert with_sim["penalty"][0] > 0


def test_missing_data_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no data at .*nothing\.npz. Give --data"):
        recipe.main(["--data", str(tmp_path / "nothing.npz")])


def test_labels_are_balanced_and_the_rest_is_the_rest() -> None:
    y = torch.arange(300) % 10
    known, unused = recipe.labelled(y, 50, torch.Generator().manual_seed(0))
    assert torch.bincount(y[known]).tolist() == [5] * 10
    assert sorted([*known.tolist(), *unused.tolist()]) == list(range(300))
    with pytest.raises(ValueError, match="too few"):
        recipe.labelled(y, 310, torch.Generator())
    with pytest.raises(ValueError, match="do not divide"):
        recipe.labelled(y, 55, torch.Generator())


def test_augmentation_is_a_crop_and_perhaps_a_flip() -> None:
    x = torch.randn(12, 3, 8, 8)
    out = recipe.augmented(x, torch.Generator().manual_seed(0))
    padded = nn.functional.pad(x, (4, 4, 4, 4))
    found = set()
    for i in range(12):
        crops = {
            (top, left, flip): padded[i, :, top : top + 8, left : left + 8].flip(2 if flip else ())
            for top in range(9)
            for left in range(9)
            for flip in (False, True)
        }
        matches = [where for where, crop in crops.items() if torch.equal(crop, out[i])]
        assert len(matches) == 1
        found.add(matches[0])
    assert len(found) > 9  # each image its own draw
    assert {flip for *_, flip in found} == {True, False}


def test_spikes_by_hand() -> None:
    steady = recipe.roughness([2.0] * 50)
    assert (steady["spikes"], steady["jitter"], steady["largest_jump"]) == (0, 0, 1)
    # After 1, 1, 4 the average is 0.98 + 0.02 * 4 = 1.06: 3.1 is no spike, 3.3 would be.
    assert recipe.roughness([1.0, 1.0, 4.0, 3.1])["spikes"] == pytest.approx(1 / 3)
    assert recipe.roughness([1.0, 1.0, 4.0, 3.3])["spikes"] == pytest.approx(2 / 3)


def test_what_is_retained() -> None:
    class Blocks(nn.Module):
        """Images -> three blocks that keep everything, keep one of three channels, keep nothing."""

        def __init__(self) -> None:
            super().__init__()
            self.turn = nn.Conv2d(3, 3, 1)
            self.third = nn.Conv2d(3, 1, 1)
            with torch.no_grad():
                self.third.weight.copy_(torch.tensor([1.0, 0, 0]).view(1, 3, 1, 1))
            self.noise = nn.Dropout(1.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.noise(x) + self.turn(x) + self.third(x)

    x = torch.randint(256, (400, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    model = Blocks()
    # Ridge 1e-3 on correlated outputs costs a little; channels are independent and equally strong, so one is a third.
    assert recipe.retained(model, "turn", x, ridge=1e-9) == pytest.approx(1, abs=1e-6)
    assert recipe.retained(model, "third", x) == pytest.approx(1 / 3, abs=0.02)
    assert recipe.retained(model, "noise", x) == pytest.approx(0, abs=0.01)


def test_interval_is_students() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 5))
    low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
    middle, half = recipe.interval((a - b).tolist())
    assert (middle - half, middle + half) == pytest.approx((low, high))
