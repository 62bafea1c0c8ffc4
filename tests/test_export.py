"""What is exported loads without reglet and gives the same features."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from reglet import backbones
from reglet import export as exporting
from reglet.evaluate.embed import embed
from reglet.export import ExportError, bare, export, load_encoder, load_weights, preprocessing


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
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
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


def test_the_cards_preprocessing_is_that_of_embed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of photographs as they come: wide, tall, grey, with transparency, on their side."""
    from PIL import Image

    photos = tmp_path / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for i in range(16):
        pixels = rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
        image = Image.fromarray(pixels).resize((50 + 9 * i, 110 - 4 * i), Image.Resampling.BICUBIC)
        if i % 4 == 0:
            exif = image.getexif()
            exif[0x0112] = 6  # to be turned
            image.save(photos / f"{i:02}.jpg", exif=exif)
        else:
            image.convert({1: "RGB", 2: "L", 3: "RGBA"}[i % 4]).save(photos / f"{i:02}.png")
    exported(tmp_path, "convnet")
    embed(tmp_path, str(photos), tmp_path / "features.npz")
    expected = torch.from_numpy(np.load(tmp_path / "features.npz")["features"])

    encoder = run_code(tmp_path, monkeypatch)
    names: dict[str, Any] = {}
    exec(json.loads(Path("card.json").read_text())["preprocess"], names)
    x = torch.cat([names["preprocess"](names["read"](path)) for path in sorted(photos.iterdir())])
    with torch.no_grad():
        torch.testing.assert_close(encoder(x), expected, rtol=1e-4, atol=1e-5)


def test_the_cards_preprocessing_of_arrays(tmp_path: Path) -> None:
    """Of one channel, and of another size than the encoder's."""
    net = backbones.build("convnet", size=32, in_channels=1)
    card = export(net, tmp_path, name="convnet", size=32, in_channels=1, card={})
    names: dict[str, Any] = {}
    exec(card["preprocess"], names)
    x = torch.randint(0, 256, (3, 1, 40, 20), dtype=torch.uint8)
    torch.testing.assert_close(names["preprocess"](x), preprocessing(32)(x), rtol=0, atol=1e-4)
    assert "read" not in names, "files are read in colour"


def test_a_card_that_prepares_otherwise_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reglet import export as module

    monkeypatch.setattr(module, "PREPROCESS", module.PREPROCESS.replace("bicubic", "bilinear"))
    with pytest.raises(ExportError, match=r"preprocess\(\) gives other images"):
        exported(tmp_path, "convnet")


@pytest.mark.parametrize(
    ("name", "options"),
    [("convnet", {}), ("vit_mini", {}), ("vit_mini", {"cls_layer": 3})],
    ids=["torch", "timm", "program"],
)
@pytest.mark.usefixtures("timm")
def test_a_folder_of_any_name(name: str, options: dict[str, int], tmp_path: Path) -> None:
    """The code names a file; what its name says is not run."""
    folder = tmp_path / "q\"x');raise SystemExit('ran')#{encoder.safetensors}\\"
    net = exported(folder, name, **options)
    given = {"name": name, "size": 32, "in_channels": 3, "card": {"model": options}}
    export(net, folder, **given, head=nn.Linear(backbones.protocol.dim_of(net), 2), classes=["a", "b"])
    card = json.loads((folder / "card.json").read_text())
    assert card["verified"]["by"] == card["classifier"]["verified"]["by"] == "the code above"
    assert "SystemExit" not in card["load"]


@pytest.mark.parametrize("broken", [exporting.ENCODER, exporting.HEAD])
def test_files_are_whole_or_as_before(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power goes while weights are written over those of an earlier export."""

    def write(seed: int) -> None:
        torch.manual_seed(seed)
        net, head = backbones.resnet8(), nn.Linear(64, 2)
        export(net, tmp_path, name="resnet8", size=32, in_channels=3, card={}, head=head, classes=["a", "b"])

    write(0)
    kept = {name: (tmp_path / name).read_bytes() for name in (exporting.ENCODER, exporting.HEAD)}
    save = exporting.save_file

    def half(tensors: dict[str, torch.Tensor], file: Path) -> None:
        save(tensors, file)
        if broken in str(file):
            file.write_bytes(file.read_bytes()[:100])
            raise KeyboardInterrupt

    monkeypatch.setattr(exporting, "save_file", half)
    with pytest.raises(KeyboardInterrupt):
        write(1)
    assert (tmp_path / broken).read_bytes() == kept[broken]
