"""`reglet train task=dense`: frozen tokens, of the last layer or of several, and what a linear map reads from them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from reglet.backbones import ConvNet, vit_mini
from reglet.cli import main
from reglet.tasks.dense.task import frozen_maps


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A bright square somewhere on noise."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 90, (40, 32, 32, 3), dtype=np.uint8)
    masks = np.zeros((40, 32, 32), dtype=np.uint8)
    for i in range(40):
        r, c = rng.integers(0, 3, 2) * 8
        images[i, r : r + 12, c : c + 12] += 120
        masks[i, r : r + 12, c : c + 12] = 1
    split = np.array(["train"] * 30 + ["test"] * 10)
    np.savez(path := tmp_path / "squares.npz", images=images, masks=masks, split=split)
    return path


def test_it_reads_the_square_and_only_the_head_is_trained(data: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    words = ["task=dense", f"data={data}", "model=convnet", "accelerator=cpu", "batch=10"]
    long, several = ["steps=40", "lr=0.05"], "layers=stages.0,stages.2"
    found = {}
    for name, more in {"last": long, "several": [*long, several], "untrained": ["steps=1", "lr=1e-9", several]}.items():
        out = tmp_path / name
        assert main(["train", *words, *more, f"out={out}"]) == 0
        report = json.loads((out / "task.json").read_text())
        found[name] = report["runs"][0]["scores"]
    assert set(found["last"]) == {"mean_iou", "iou 0", "iou 1"}
    assert found["several"]["mean_iou"] > 0.75
    assert found["several"]["mean_iou"] > found["untrained"]["mean_iou"] + 0.2


def test_an_encoder_of_a_run_is_read(data: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    base = [f"data={data}", "model=convnet", "accelerator=cpu", "batch=10", "epochs=1", "projector=16-8"]
    assert main(["pretrain", *base, "loss.slices=16", f"out={tmp_path / 'a'}"]) == 0
    words = ["task=dense", f"data={data}", f"encoder={tmp_path / 'a'}", "steps=2", "accelerator=cpu", "batch=10"]
    assert main(["train", *words, f"out={tmp_path / 'b'}"]) == 0
    assert "mean_iou" in (tmp_path / "b/task.json").read_text()


@pytest.mark.parametrize(("encoder", "layers"), [(vit_mini(size=32), ["blocks.1"]), (ConvNet(), ["stages.1"])])
def test_maps_are_in_their_places(encoder: nn.Module, layers: list[str]) -> None:
    """A picture whose lower half changes changes the lower rows the most."""
    x = torch.full((1, 3, 32, 32), 100, dtype=torch.uint8)
    other = x.clone()
    other[:, :, 24:] = 250
    for some in ([], layers):
        apart = (
            (frozen_maps(encoder, x, some, size=32) - frozen_maps(encoder, other, some, size=32)).abs().mean((0, 1, 3))
        )
        assert apart.argmax() >= len(apart) // 2


def test_what_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "task=dense", f"data={data}", "model=convnet", "accelerator=cpu", f"out={tmp_path / 'c'}"]
    for more, says in (("batch=1", "batch norm wants 2"), ("layers=blocks.9", "no module matches 'blocks.9'")):
        assert main([*words, more]) == 2
        assert says in capsys.readouterr().err
