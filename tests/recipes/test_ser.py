"""SER's recipes at a size of seconds, on images whose classes differ in colour."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from recipes.vit_encoder import Pretraining

from recipes import ser, ser_ablation, ser_bases, ser_family, ser_robust, vit_encoder


def words(data: Path, out: Path, *more: str) -> list[str]:
    return ["--data", str(data), "--out", str(out), "--epochs", "1", "--seeds", "2", "--batch", "64", *more]


def rows(folder: Path) -> dict[str, dict]:
    return {row["arm"]: row for row in json.loads((folder / "summary.json").read_text())["rows"]}


@pytest.mark.slow
def test_arms_are_paired_and_the_released_one_is_lambda_zero(data: Path, tmp_path: Path) -> None:
    assert ser.main(words(data, tmp_path, "--workers", "1")) == 0
    found = rows(tmp_path)
    assert set(found) == set(ser.ARMS)
    released = found["SER as released"]
    assert released["versus"] == "lambda = 0"
    assert all(difference == [0, 0] for difference in released["difference"].values())
    assert any(difference[0] != 0 for difference in found["SER"]["difference"].values())
    assert found["lambda = 0"]["versus"] == "base"
    assert 0 < found["base"]["mean"]["linear"][0] <= 100
    assert len(list(tmp_path.glob("*.safetensors"))) == 2 * len(ser.ARMS)
    assert "| SER as released | lambda = 0 |" in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
def test_robustness_of_the_encoders(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ser, "ARMS", {arm: ser.ARMS[arm] for arm in ("lambda = 0", "SER")})
    encoders, out = tmp_path / "encoders", tmp_path / "robust"
    given = ["--data", str(data), "--out", str(out), "--images", "40", "--frames", "3", "--workers", "1"]
    with pytest.raises(SystemExit, match=r"no encoders in .* recipes.ser makes them"):
        ser_robust.main([*given, "--encoders", str(encoders)])
    assert ser.main(words(data, encoders, "--workers", "1", "--images", "128")) == 0
    assert ser_robust.main([*given, "--encoders", str(encoders)]) == 0
    found = rows(out)
    assert list(found) == ["lambda = 0", "SER"]
    assert set(found["SER"]["difference"]) == {"clean", "corrupted", "perturbed", "flip rate"}
    assert 0 < found["SER"]["mean"]["corrupted"][0] < 100
    stored = [json.loads(path.read_text()) for path in out.glob("*.json") if path.stem != "summary"]
    assert all(len(each["corruptions"]) == 15 and len(each["perturbations"]) == 14 for each in stored)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [ser_ablation, ser_bases, ser_family])
def test_tables(data: Path, tmp_path: Path, recipe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    last = {arm: recipe.ARMS[arm] for arm in [*recipe.ARMS][-2:]}
    monkeypatch.setattr(recipe, "ARMS", last)
    assert recipe.main(words(data, tmp_path, "--workers", "1", "--images", "128")) == 0
    assert list(rows(tmp_path)) == list(last)


@pytest.mark.parametrize("recipe", [ser, ser_ablation, ser_bases, ser_family])
def test_every_arm_is_another_training_and_has_one_to_be_compared_with(recipe: ModuleType) -> None:
    runs = [replace(Pretraining("", 0, 1, ""), **changes) for changes in recipe.ARMS.values()]
    assert len({run.key for run in runs}) == len(runs)
    assert set(recipe.REFERENCE) | set(recipe.REFERENCE.values()) <= set(recipe.ARMS)


def test_weights_come_back(data: Path, tmp_path: Path) -> None:
    run = Pretraining("base", 0, 0, "")
    vit_encoder.compute(run, vit_encoder.load(data), folder=tmp_path)
    x = torch.rand(3, 3, 16, 16)
    again = vit_encoder.trained(run, tmp_path)
    torch.manual_seed(0)
    assert torch.equal(again(x), vit_encoder.network(run).eval()(x))


@pytest.mark.parametrize("changes", [{"wrapper": "ser"}, {"wrapper": "augself"}, {"wrapper": "equimod", "layer": 0}])
def test_arms_of_a_seed_start_from_the_same_weights(changes: dict) -> None:
    run = Pretraining("", 3, 1, "", base="MoCo-v3")
    plain = vit_encoder.method(run).state_dict()
    other = vit_encoder.method(replace(run, **changes)).state_dict()
    assert all(torch.equal(value, other[f"method.{key}"]) for key, value in plain.items())
    another = vit_encoder.method(replace(run, seed=4)).state_dict()
    assert not torch.equal(plain["backbone.pos_embed"], another["backbone.pos_embed"])


def test_jpeg_files_one_after_the_other(tmp_path: Path) -> None:
    import io

    from PIL import Image

    gray = [np.full((8, 8), value, dtype=np.uint8) for value in (10, 200, 90)]
    files = []
    for pixels in gray:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG")
        files.append(np.frombuffer(file.getvalue(), dtype=np.uint8))
    path = tmp_path / "jpeg.npz"
    offsets = np.cumsum([0, *map(len, files)])
    np.savez(path, jpeg=np.concatenate(files), offsets=offsets, labels=np.array([0, 1, 2]), split=np.array([0, 1, 0]))
    train, test = vit_encoder.load(path)
    images = train.batch(torch.arange(2))
    assert images.shape == (2, 3, 8, 8)
    assert images[:, :, 0, 0].tolist() == [[10] * 3, [90] * 3]
    assert vit_encoder.known(test).tolist() == [1]


def test_a_symmetrical_network_scores_one_and_its_quadrants_tell_turns() -> None:
    net = vit_encoder.network(Pretraining("", 0, 0, ""))
    with torch.no_grad():
        weight = net.patch_embed.proj.weight
        weight.copy_(weight.mean((2, 3), keepdim=True).expand_as(weight))
        net.pos_embed.zero_()
    g = torch.Generator().manual_seed(0)
    x = torch.rand(200, 3, 16, 16, generator=g) + torch.linspace(0, 1, 16).view(1, 1, 16, 1)  # lighter below
    found = vit_encoder.symmetry(net, x)
    assert found["equivariance"]["centred"]["rot"] == pytest.approx([1] * 6)
    assert found["equivariance"]["centred"]["flip"] == pytest.approx([1] * 6)
    assert max(found["equivariance"]["centred_floor"]["rot"]) < 0.9
    assert found["turn probe"][0] > 95
    assert 30 < found["flip probe"][0] < 70
