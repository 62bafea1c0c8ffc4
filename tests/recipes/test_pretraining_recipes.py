"""The pretraining recipes at a size of seconds, on images whose classes differ in colour."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from recipes.encoder import Data
from recipes.recipe import Recipe, main

from recipes import encoder, smi_batch_size, ssl_losses, visreg_ablation, visreg_digits, visreg_ratios, visreg_slices
from reglet.engine.guard import NonFiniteError
from reglet.losses import VICRegLoss
from reglet.runs import Run, read_summary


@pytest.fixture(scope="module")
def parts(data: Path) -> Data:
    return encoder.load_parts(data)


def small(recipe: Recipe, *arms: str, tries: int = 2, **changes: object) -> Recipe:
    """Some of its arms, and a smaller search."""
    kept = {arm: recipe.arms[arm] for arm in arms}
    grid = {arm: recipe.grid[arm][:tries] for arm in kept if arm in recipe.grid}
    folds = changes.get("folds", recipe.folds)
    printed = [p for p in recipe.printed if {p.arm, p.versus} <= {*kept} and {*(p.folds or ())} <= {*folds}]
    once = [arm for arm in recipe.once if arm in kept]
    return replace(recipe, arms=kept, grid=grid, printed=printed, once=once, gates=lambda r: (), **changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        small(ssl_losses.RECIPE, "Barlow Twins", "SMI", "random weights", "raw pixels"),
        small(smi_batch_size.RECIPE, "Barlow Twins", "SMI", "raw pixels", folds=("32",)),
        small(visreg_ratios.RECIPE, "full", "shape 4:1", "raw pixels"),
        small(visreg_digits.RECIPE, "full", "no scale", "SWD, 128 slices", "raw pixels"),
        small(visreg_slices.RECIPE, *(f"SIGReg, {k} slices" for k in (128, 1024)), "raw pixels", baseline=""),
    ],
    ids=lambda recipe: recipe.name,
)
def test_it_runs(recipe: Recipe, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = {"epochs": 1, "steps": 2, "batch": 32, "slices": 32, "imbalance": 4}
    words = [f"{key}={value}" for key, value in short.items() if key in recipe.settings]
    assert main(recipe, [*words, f"data={data}", f"out={tmp_path}", "seeds=2", "jobs=1"]) == 0
    printed = capsys.readouterr().out
    assert all(f"| {arm} |" in printed for arm in recipe.arms)
    assert len(read_summary(tmp_path / "summary.json")["claims"]) == len(recipe.printed)


def test_rates_grow_with_the_root_of_the_batch() -> None:
    assert smi_batch_size.scaled(1.0, 32) == pytest.approx(smi_batch_size.scaled(1.0, 128) / 2)


def test_every_arm_has_another_gradient() -> None:
    seen = []
    for changes in (visreg_ablation.KNOCKED_OUT | visreg_ratios.RATIOS | visreg_slices.SLICES).values():
        run = Run("", 0, settings={**visreg_ablation.RECIPE.settings, **changes})
        z = torch.randn(2, 32, 8, generator=torch.Generator().manual_seed(0)) * 2 + 1
        z.requires_grad_()
        visreg_ablation.objective(run)(z).backward()
        seen.append(z.grad)
    for i, a in enumerate(seen):
        assert not any(torch.allclose(a, b, rtol=1e-3) for b in seen[:i])


def test_ratios_keep_the_sum_of_the_weights() -> None:
    for name, changes in visreg_ratios.RATIOS.items():
        assert sum(changes.values()) == 3, name


def test_the_tail_is_long_and_nothing_held_out_is_in_it(parts: Data) -> None:
    train, held = visreg_ablation.tail_and_rest(parts.train, imbalance=10.0)
    counts = torch.bincount(encoder.known(train))
    assert int(counts[0]) >= 25
    assert int(counts[-1]) == int(counts[0]) // 10
    assert counts.tolist() == sorted(counts.tolist(), reverse=True)
    assert not {*train.index.tolist()} & {*held.index.tolist()}
    assert len(held) == 80
    assert len(encoder.known(held).unique()) == 10  # a probe fitted on them can name every class


def test_runs_of_a_seed_start_from_the_same_weights_and_a_loss_changes_them(parts: Data) -> None:
    run = Run("VICReg", 3, settings={"epochs": 1, "batch": 64, "lr": 1e-3})
    start = encoder.method(VICRegLoss(), seed=3).state_dict()
    again, other = (encoder.method(VICRegLoss(), seed=seed).state_dict() for seed in (3, 4))
    assert all(torch.equal(start[k], again[k]) for k in start)
    assert not torch.equal(start["backbone.stages.0.0.weight"], other["backbone.stages.0.0.weight"])
    a, b = (encoder.pretrain(r, VICRegLoss(), parts.train).state_dict() for r in (run, run))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["backbone.stages.0.0.weight"], start["backbone.stages.0.0.weight"])


def test_a_trial_that_diverges_scores_nothing() -> None:
    settings = {**ssl_losses.RECIPE.settings, "epochs": 1, "lr": 1e30, "loss": "VICReg", "weight": 1.0}
    result = ssl_losses.compute(Run("VICReg", 0, settings=settings | {"trial": True}), visreg_digits.load(Path()))
    assert result[visreg_digits.FEW] == 0
    assert "step" in result["diverged"]
    with pytest.raises(NonFiniteError):
        ssl_losses.compute(Run("VICReg", 0, settings=settings), visreg_digits.load(Path()))


def test_rank_of_what_is_known() -> None:
    x = torch.randn(4000, 8, generator=torch.Generator().manual_seed(0))
    assert encoder.rank(x) == pytest.approx(8, rel=0.01)
    assert encoder.rank(x[:, :1] * torch.ones(1, 8) + 5) == pytest.approx(1, abs=1e-3)  # the mean does not count
