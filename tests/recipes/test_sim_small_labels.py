import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from recipes import sim_small_labels as recipe


def test_it_runs_and_pairs(data: Path, tmp_path: Path) -> None:
    small = ["--labels", "40", "80", "--seeds", "2", "--steps", "3", "--batch", "20", "--dose", "0.5"]
    assert recipe.main(["--data", str(data), "--out", str(tmp_path), *small]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["facts"]["runs"] == 2 * (8 + 1 + 4)
    assert all(row["seeds"] == 2 and bool(row["difference"]) == bool(row["weight"]) for row in summary["rows"])
    assert "| 80 | mixup | 0.005 |" in (tmp_path / "summary.md").read_text()


def test_results_stored_by_earlier_versions_are_still_those_of_their_runs() -> None:
    run = recipe.Run("base", 1000, 0, 0.0, "0" * 16)
    assert list(asdict(run)) == [
        *("arm", "labels", "seed", "weight", "data", "steps", "batch", "lr", "momentum", "weight_decay"),
        *("smoothing", "alpha", "rho"),
    ]
    assert run.key == "b673f2affc0c9989"


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
