"""Encoders that travel: the Hub's layout, timm's reading of it, ONNX."""

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from huggingface_hub import ModelCard
from torch import nn

from reglet import backbones, hub
from reglet.cli import main
from reglet.export import ExportError, export
from reglet.hub import CONFIG, MODEL_CARD, WEIGHTS, push, write_hub
from reglet.onnx import write_onnx

EVAL = {
    "data": {"test": {"name": "pets/test", "images": 200}},
    "probes": {"knn": {"accuracy": 0.5, "interval": [0.431, 0.569]}, "few": {"accuracy": 0.25}},
}


def exported(folder: Path, name: str, *, size: int = 32, in_channels: int = 3) -> nn.Module:
    torch.manual_seed(0)
    backbone = backbones.build(name, size=size, in_channels=in_channels)
    with torch.no_grad():  # so that no two parts are the same and every part counts
        for parameter in backbone.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    card = {"model": {}, "method": {"command": "pretrain", "method": "visreg"}, "data": {"name": "pets/train"}}
    export(backbone, folder, name=name, size=size, in_channels=in_channels, card=card)
    return backbone.eval()


@pytest.mark.parametrize(("name", "size", "channels"), [("vit_mini", 32, 3), ("vit_mini", 32, 1), ("resnet18", 64, 3)])
def test_timm_builds_the_encoder_from_the_folder(
    name: str, size: int, channels: int, tmp_path: Path, timm: ModuleType
) -> None:
    ours = exported(tmp_path / "encoder", name, size=size, in_channels=channels)
    folder = write_hub(tmp_path / "encoder", tmp_path / "hub")
    theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    x = torch.randn(2, channels, size, size)
    torch.testing.assert_close(theirs(x), ours(x), rtol=1e-4, atol=1e-4)
    config = timm.data.resolve_data_config({}, model=theirs)
    assert tuple(config["input_size"]) == (channels, size, size)
    assert (config["crop_pct"], config["interpolation"]) == (1.0, "bicubic")
    assert len(config["mean"]) == channels


def test_a_folder_that_timm_would_build_otherwise_is_refused(
    tmp_path: Path, timm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(tmp_path / "encoder", "vit_mini")
    right = hub.timm_config

    def wrong(backbone: nn.Module, card: dict[str, object]) -> dict[str, object]:
        made = right(backbone, card)
        assert made is not None
        return made | {"model_args": made["model_args"] | {"num_heads": 6}}

    monkeypatch.setattr(hub, "timm_config", wrong)
    with pytest.raises(ExportError, match="another encoder"):
        write_hub(tmp_path / "encoder", tmp_path / "hub")


def test_the_card_has_what_the_hub_reads(tmp_path: Path, timm: ModuleType) -> None:
    exported(tmp_path / "run", "vit_mini")
    (tmp_path / "run/eval.json").write_text(json.dumps(EVAL))
    (tmp_path / "run/doctor.json").write_text(json.dumps({"verdict": "healthy", "data": "pets/train"}))
    (tmp_path / "run/config.json").write_text(json.dumps({"lr": 0.125, "resolved": {"size": 32}}))
    folder = write_hub(tmp_path / "run", tmp_path / "hub", licence="cc-by-4.0")
    card = ModelCard.load(folder / MODEL_CARD)
    assert (card.data.library_name, card.data.license) == ("timm", "cc-by-4.0")
    scores = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert scores == {"knn probe": 50.0, "few probe": 25.0}
    for text in ("43.1 to 56.9", "200 test images", "`healthy`", '"lr": 0.125', "timm.create_model"):
        assert text in card.text
    assert "resolved" not in card.text


def test_without_scores_the_card_says_so(tmp_path: Path) -> None:
    exported(tmp_path / "encoder", "convnet")
    folder = write_hub(tmp_path / "encoder", tmp_path / "hub")
    card = ModelCard.load(folder / MODEL_CARD)
    assert card.data.library_name == "reglet"
    assert "Not evaluated" in card.text
    assert "Not asked" in card.text
    assert json.loads((folder / CONFIG).read_text())["architecture"]["name"] == "convnet"
    code = card.text.split("```python\n")[1].split("```")[0].replace(f"'{WEIGHTS}'", repr(str(folder / WEIGHTS)))
    names: dict[str, nn.Module] = {}
    exec(code, names)  # the lines a reader would copy
    assert names["encoder"](torch.zeros(1, 3, 32, 32)).shape == (1, 128)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    exported(tmp_path / "encoder", "convnet")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / CONFIG).write_text("{}")
    with pytest.raises(ExportError, match="a folder of its own"):
        write_hub(tmp_path / "encoder", tmp_path / "other")
    assert (tmp_path / "other" / CONFIG).read_text() == "{}"


def test_push_uploads_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []

    class Api:
        def create_repo(self, name: str, *, exist_ok: bool) -> str:
            assert exist_ok
            return f"there/{name}"

        def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
            calls.append((repo_id, str(folder_path)))

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    assert push(tmp_path, "me/net") == "there/me/net"
    assert calls == [("me/net", str(tmp_path))]
    with pytest.raises(ValueError, match="user/name, got 'net'"):
        push(tmp_path, "net")


def test_onnx_gives_the_same_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported(tmp_path / "encoder", "convnet")
    assert main(["export", str(tmp_path / "encoder"), f"onnx={tmp_path / 'encoder.onnx'}"]) == 0
    assert "in onnxruntime features differ by" in capsys.readouterr().out
    assert (tmp_path / "encoder.onnx").stat().st_size > 100_000


def test_onnx_of_other_features_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported(tmp_path / "encoder", "convnet")
    monkeypatch.setattr("reglet.onnx._write", lambda backbone, x, file: file.write_bytes(b""))
    monkeypatch.setattr("reglet.onnx._apart", lambda backbone, x, file: 0.5)
    with pytest.raises(ExportError, match=r"differ from torch.s by 5\.0e-01"):
        write_onnx(tmp_path / "encoder", tmp_path / "encoder.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["encoder"]
    with pytest.raises(ValueError, match=r"ends in \.onnx, got 'encoder\.bin'"):
        write_onnx(tmp_path / "encoder", Path("encoder.bin"))


def test_bad_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), "push_to_hub=me/net"]) == 2
    assert "give both" in capsys.readouterr().err
    assert main(["export", str(tmp_path), "hub=x"]) == 2
    assert "is no directory of a run or of an exported encoder" in capsys.readouterr().err
