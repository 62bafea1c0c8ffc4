"""What is read along a run, and what is counted instead of trained."""

from dataclasses import replace
from math import log10
from pathlib import Path

import pytest
import torch
from recipes.recipe import main

from recipes import costs, smi_dynamics, visreg_correlation
from reglet.runs import read_summary


def test_the_loss_since_the_last_score_belongs_to_the_next() -> None:
    steps = [{"step": i, "loss": loss} for i, loss in enumerate((5.0, 3.0, 2.0, 0.0), 1)]
    lines = [*steps[:2], {"step": 2, "accuracy@1": 0.5}, *steps[2:], {"step": 4, "accuracy@2": 0.7}]
    assert visreg_correlation.curves(lines) == ([4.0, 1.0], [0.5, 0.7])


def test_dynamics_do_not_see_the_first_tenth_nor_the_unit() -> None:
    norms = [1e6, 1, 10, 1, 10, 1, 10, 1, 10, 1]
    lines = [{"grad_norm": norm, "invariance": 1.0, "redundancy": 0.1} for norm in norms]
    found = smi_dynamics.dynamics([*lines, {"step": 10, "knn": 0.5}])
    assert found == {"log gradient": pytest.approx(4 / 9), "roughness": 1.0, "log ratio": pytest.approx(-1.0)}
    doubled = smi_dynamics.dynamics([{**line, "grad_norm": 2 * line["grad_norm"]} for line in lines])
    assert doubled["roughness"] == pytest.approx(1.0)
    assert doubled["log gradient"] == pytest.approx(4 / 9 + log10(2))


def test_deviation_has_no_unit() -> None:
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)) + 1
    assert smi_dynamics.deviation(3 * x) == pytest.approx(smi_dynamics.deviation(x))
    assert smi_dynamics.deviation(x + 100) < 0.1 * smi_dynamics.deviation(x)


def test_operations_by_hand() -> None:
    """SMI: three Gram matrices of each device.  Barlow Twins and VICReg: two of all samples, by reglet's kernels."""
    n, d = costs.SAMPLES * costs.DEVICES, costs.FEATURES
    assert costs.operations("SMI") == pytest.approx(12.88, abs=0.01)
    assert costs.operations("Barlow Twins") == costs.operations("VICReg") == pytest.approx(2 * n * n * d / 1e9)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [visreg_correlation.RECIPE, smi_dynamics.RECIPE], ids=lambda recipe: recipe.name)
def test_it_runs(recipe: object, data: Path, tmp_path: Path) -> None:
    words = [f"data={data}", f"out={tmp_path}", "epochs=6", "batch=64", "seeds=2", "jobs=1", "width=8"]
    assert main(replace(recipe, gates=lambda results: ()), words) == 0  # type: ignore[arg-type, type-var]
    claims = read_summary(tmp_path / "summary.json")["claims"]
    assert len(claims) == len(recipe.printed)  # type: ignore[attr-defined]
