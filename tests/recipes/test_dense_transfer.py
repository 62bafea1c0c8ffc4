from pathlib import Path
from typing import Any

import pytest
import torch
from recipes.recipe import main

from recipes import dense_transfer as recipe
from reglet.runs import Run


def run(arm: str, **changes: Any) -> Run:
    return Run(arm, 0, settings={**recipe.RECIPE.settings, **changes})


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
    y, grid = recipe.tokens(recipe.pretrained(run("random"), x), x)
    assert (grid, y.shape) == ((8, 8), (2, 64, 64))


def test_arms_start_alike_and_the_probe_reads_the_ink(digits: recipe.Data) -> None:
    small = {"epochs": 1, "images": 128, "dim": 32, "depth": 1, "probe_epochs": 5}
    start = recipe.pretrained(run("random", **small), digits.train[:128]).state_dict()
    trained = recipe.pretrained(run("VISReg", **small | {"lr": 1e-12}), digits.train[:128]).state_dict()
    assert all(torch.allclose(start[key], trained[key], atol=1e-8) for key in start)
    other = recipe.pretrained(run("VISReg + SIM", **small), digits.train[:128]).state_dict()
    assert list(other) == list(start)
    assert recipe.compute(run("random", **small), digits)["iou"] > 20
    assert recipe.compute(run("VISReg", **small), digits) != recipe.compute(run("random", **small), digits)


@pytest.mark.slow
def test_it_runs_and_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(recipe.RECIPE, [f"out={tmp_path}", "seeds=2", "epochs=1", "images=64", "jobs=1"]) == 0
    printed = capsys.readouterr().out
    assert "| VISReg | random |" in printed
    assert "| VISReg + SIM | VISReg |" in printed
