"""What is exported loads without reglet and gives the same features."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from reglet import backbones
from reglet.export import ExportError, bare, export, load_encoder, load_weights


def exported(folder: Path, name: str, *, size: int = 32, **options: object) -> nn.Module:
    torch.manual_seed(0)
    net = backbones.build(name, size=size, **options)  # type: ignore[arg-type]
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    export(net, folder, name=name, size=size, in_channels=3, card={"model": options, "metrics": {"knn": 0.5}})
    return net.eval()


def run_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """The code on the card, as a person would run it beside the file, with no reglet to be imported."""
    monkeypatch.chdir(folder)
    for name in [name for name in sys.modules if name.split(".")[0] == "reglet"]:
        monkeypatch.setitem(sys.modules, name, None)
    names: dict[str, object] = {}
    exec(json.loads(Path("card.json").read_text())["load"], names)
    encoder = names["encoder"]
    assert isinstance(encoder, nn.Module)
    return encoder


def same(ours: nn.Module, theirs: nn.Module) -> None:
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), ours(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["convnet", "resnet8"])
def test_plain_torch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = exported(tmp_path, name)
    same(net, run_code(tmp_path, monkeypatch))


@pytest.mark.parametrize("cls_layer", [0, None])
def test_our_vit_in_timm(
    timm: ModuleType, cls_layer: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = exported(tmp_path, "vit_mini", cls_layer=cls_layer)
    same(net, run_code(tmp_path, monkeypatch))


def test_our_vit_with_a_late_cls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm has no such network: it leaves as a program, for batches of any size."""
    net = exported(tmp_path, "vit_mini", cls_layer=3)
    same(net, run_code(tmp_path, monkeypatch))


def test_timm_keys_are_timms(timm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = exported(tmp_path, "timm/resnet10t")
    fresh = timm.create_model("resnet10t", num_classes=0)
    assert load_file(tmp_path / "encoder.safetensors").keys() == fresh.state_dict().keys()
    same(net, run_code(tmp_path, monkeypatch))


def test_comes_back_in_reglet(tmp_path: Path) -> None:
    net = exported(tmp_path, "resnet8")
    again, preprocess, card = load_encoder(tmp_path)
    same(net, again)
    assert card["metrics"] == {"knn": 0.5}
    assert card["code"]["licence"] == "MIT"
    assert card["verified"]["largest relative difference"] < 1e-4
    x = preprocess(torch.full((2, 3, 40, 40), 255, dtype=torch.uint8))
    assert x.shape == (2, 3, 32, 32)
    mean, std = (torch.tensor(card["preprocessing"][key]) for key in ("mean", "std"))
    torch.testing.assert_close(x.mean((0, 2, 3)), (1 - mean) / std)


def test_a_file_with_other_weights_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reglet import export as module

    def careless(tensors: dict[str, torch.Tensor], path: Path) -> None:
        real({key: value + 0.1 if value.ndim == 4 else value for key, value in tensors.items()}, path)

    real = module.save_file
    monkeypatch.setattr(module, "save_file", careless)
    with pytest.raises(ExportError, match="the exported encoder gives other features"):
        exported(tmp_path, "convnet")


def test_weights_of_another_architecture(tmp_path: Path) -> None:
    exported(tmp_path, "convnet")
    with pytest.raises(ExportError, match=r"are of another architecture: .*conv1.weight"):
        load_weights(backbones.build("resnet8", size=32), tmp_path)
    with pytest.raises(ExportError, match="there is no encoder at"):
        load_weights(backbones.build("convnet", size=32), tmp_path / "none")


def test_what_an_adapter_wraps_is_exported() -> None:
    net = nn.Conv2d(3, 4, 3)
    assert bare(backbones.Adapter(net, size=8)) is net
