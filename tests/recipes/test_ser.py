"""SER's recipes at a size of seconds, on images whose classes differ in colour."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from recipes.encoder import load_parts
from recipes.recipe import main
from recipes.ser_encoder import Arm, arm_of, settings

from recipes import ser, ser_encoder, ser_family
from reglet.runs import Run, read_summary


@pytest.mark.slow
def test_the_released_arm_is_lambda_zero(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"data={data}", f"out={tmp_path}", "epochs=1", "seeds=2", "batch=64", "images=128", "corrupted=20"]
    arms = {arm: ser.RECIPE.arms[arm] for arm in ser.RECIPE.arms if arm != "random weights"}
    assert main(replace(ser.RECIPE, arms=arms), [*words, "frames=2", "jobs=1"]) == 0
    rows = {line.split(" | ")[0][2:]: line for line in capsys.readouterr().out.splitlines() if line.startswith("|")}
    differences = [cell.split("(")[1] for cell in rows["SER as released"].split(" | ") if "(" in cell]
    assert len(differences) == len(ser.RECIPE.measures)
    assert set(differences) == {"+0.00 ± 0.00)"}
    assert any("(" in cell and "(+0.00 ± 0.00)" not in cell for cell in rows["SER"].split(" | "))
    assert len(read_summary(tmp_path / "summary.json")["claims"]) == len(ser.PRINTED)


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["AugSelf, final", "EquiMod, stage 2"])
def test_the_family_trains(data: Path, arm: str) -> None:
    changed = settings(**{**ser_family.RECIPE.settings, **ser_family.RECIPE.arms[arm], "epochs": 1, "batch": 64})
    found = ser_encoder.compute(Run(arm, 1, settings=changed | {"images": 128}), load_parts(data))
    assert 0 < found["linear"] <= 100


def test_settings_are_an_arms() -> None:
    assert arm_of(Run("", 0, settings=settings(layer=3) | {"data": "digest"})) == Arm(layer=3)


@pytest.mark.parametrize("changes", [{"wrapper": "ser"}, {"wrapper": "augself"}, {"wrapper": "equimod", "layer": 0}])
def test_arms_of_a_seed_start_from_the_same_weights(changes: dict) -> None:
    arm = Arm(base="MoCo-v3")
    plain = ser_encoder.method(arm, seed=3).state_dict()
    other = ser_encoder.method(replace(arm, **changes), seed=3).state_dict()
    assert all(torch.equal(value, other[f"method.{key}"]) for key, value in plain.items())
    another = ser_encoder.method(arm, seed=4).state_dict()
    assert not torch.equal(plain["backbone.stages.0.0.weight"], another["backbone.stages.0.0.weight"])


def test_a_symmetrical_network_scores_one_and_its_quadrants_tell_turns() -> None:
    net = ser_encoder.network(Arm())
    net.stages = torch.nn.Sequential(torch.nn.Identity(), torch.nn.AvgPool2d(2), torch.nn.AvgPool2d(2))
    g = torch.Generator().manual_seed(0)
    x = torch.rand(200, 3, 16, 16, generator=g) + torch.linspace(0, 1, 16).view(1, 1, 16, 1)  # lighter below
    found = ser_encoder.symmetry(net, x)
    for layer in (2, 3):
        assert found[f"rot {layer}"] == pytest.approx(1)
        assert found[f"flip {layer}"] == pytest.approx(1)
        assert found[f"rot {layer}, shuffled"] < 0.9
    assert found["turn probe 2"] > 95
    assert 30 < found["flip probe 2"] < 70
