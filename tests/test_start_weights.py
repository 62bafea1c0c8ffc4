"""Weights that a run is to start from and that do not fit: every key is named, and nothing is trained."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from reglet.backbones import ConvNet, vit_mini
from reglet.cli import main
from reglet.export import ExportError, load_weights


def test_keys_are_listed_and_the_network_stays_as_it_was(tmp_path: Path) -> None:
    net = ConvNet()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    weights = {key: value + 1 for key, value in before.items()}
    gone = next(iter(weights))
    del weights[gone]
    weights["head.weight"] = torch.zeros(3)
    save_file(weights, tmp_path / "other.safetensors")
    with pytest.raises(ExportError, match=rf"are of another architecture: missing: {gone}; extra: head\.weight"):
        load_weights(net, tmp_path / "other.safetensors")
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_positions_of_another_size_say_what_to_give(tmp_path: Path) -> None:
    save_file(vit_mini(size=32).state_dict(), tmp_path / "vit.safetensors")
    with pytest.raises(ExportError, match="These are positions: give size= as the weights were trained with"):
        load_weights(vit_mini(size=48), tmp_path / "vit.safetensors")
    load_weights(vit_mini(size=32), tmp_path / "vit.safetensors")


def test_a_run_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "x.safetensors")
    words = ["pretrain", "data=digits", "steps=1", "batch=8", f"init_from={tmp_path / 'x.safetensors'}"]
    assert main([*words, f"out={tmp_path / 'run'}"]) == 2
    said = capsys.readouterr().err
    assert "extra: a" in said and "missing: stages.0.0.weight" in said  # noqa: PT018
    assert not (tmp_path / "run").exists()
    assert set(load_file(tmp_path / "x.safetensors")) == {"a"}
