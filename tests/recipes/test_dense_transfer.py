import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from recipes import dense_transfer as recipe


@pytest.fixture(scope="module")
def digits() -> recipe.Data:
    found = recipe.load(Path())
    return found._replace(test=found.test[:100], test_masks=found.test_masks[:100])


def test_tokens_are_of_their_places(digits: recipe.Data) -> None:
    """Pixels: token (i, j) is the patch in row i and column j.  A network: only its own patch's embedding sees it."""
    x = digits.test[:2]
    y, grid = recipe.tokens(None, x)
    assert grid == (8, 8)
    patch = recipe.preprocessing(32)(x)[:, :, 12:16, 20:24]
    torch.testing.assert_close(y.view(2, 8, 8, 48)[:, 3, 5], patch.flatten(1))
    y, grid = recipe.tokens(recipe.pretrained(recipe.Run("random", 0, 0, 0), x), x)
    assert (grid, y.shape) == ((8, 8), (2, 64, 64))


def test_arms_start_alike_and_the_probe_reads_the_ink(digits: recipe.Data) -> None:
    run = recipe.Run("random", 0, 1, 128, dim=32, depth=1, probe_epochs=5)
    start = recipe.pretrained(run, digits.train[:128]).state_dict()
    trained = recipe.pretrained(replace(run, arm="VISReg", lr=1e-12), digits.train[:128]).state_dict()
    assert all(torch.allclose(start[key], trained[key], atol=1e-8) for key in start)
    other = recipe.pretrained(replace(run, arm="VISReg + SIM"), digits.train[:128]).state_dict()
    assert list(other) == list(start)
    assert recipe.train(run, digits)["iou"] > 20
    assert recipe.train(replace(run, arm="VISReg"), digits) != recipe.train(run, digits)


@pytest.mark.slow
def test_it_runs_and_pairs(tmp_path: Path) -> None:
    small = ["--seeds", "2", "--epochs", "1", "--images", "64", "--workers", "1"]
    # --data is of the other recipes: these digits come with scikit-learn.
    assert recipe.main(["--out", str(tmp_path), *small]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [row["arm"] for row in summary["rows"]] == ["pixels", "random", "VISReg", "VISReg + SIM"]
    assert summary["facts"]["runs"] == 8
    assert all(0 < row["iou"]["mean"][0] < row["mean_iou"]["mean"][0] < 100 for row in summary["rows"])
    assert summary["rows"][2]["versus"] == "random"
