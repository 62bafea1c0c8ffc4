"""rhoSIM by names: `sim=stages.* sim_weight=... sim.rho=...` of the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from reglet.cli import main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "small.npz"
    split = np.array(["train"] * 40 + ["test"] * 20)
    np.savez(path, images=rng.integers(0, 255, (60, 16, 16, 3), dtype=np.uint8), labels=np.arange(60) % 2, split=split)
    return path


@pytest.mark.parametrize("command", ["pretrain", "train"])
def test_attached_exported_and_resumed(data: Path, tmp_path: Path, command: str) -> None:
    torch.set_num_threads(1)
    words = [f"data={data}", "model=convnet", "batch=20", "accelerator=cpu", "sim.rho=0.5", "sim_weight=0.01"]
    words += ["projector=16-8", "loss.slices=32"] if command == "pretrain" else []
    out = tmp_path / "a"
    assert main([command, *words, "sim=stages.[123]", "epochs=2", f"out={out}"]) == 0
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert all(row["sim"] > 0 for row in rows if "loss" in row)
    kept, exported = load_file(out / "checkpoint.safetensors"), load_file(out / "encoder.safetensors")
    assert any(key.startswith("method.attachment.heads.") for key in kept)
    assert not any("head" in key for key in exported), "nothing of SIM in the encoder"
    assert torch.equal(exported["stages.0.0.weight"], kept["method.method.backbone.stages.0.0.weight"])


def test_arguments_without_blocks(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", f"data={data}", "sim.rho=0.5", "accelerator=cpu"]) == 2
    assert "sim=" in capsys.readouterr().err


def test_blocks_that_do_not_exist(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", f"data={data}", "sim=layers.*", f"out={tmp_path / 'b'}", "accelerator=cpu"]) == 2
    assert "stages" in capsys.readouterr().err
