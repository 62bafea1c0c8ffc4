"""Before a run: what it will take, what was left open, and that measuring changes nothing."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from reglet.cli import main
from reglet.engine import budget
from reglet.engine.budget import Budget, exact_in_parts, free_memory, kept_bytes, settle, within_memory
from reglet.engine.build import build_parts
from reglet.engine.config import Config
from reglet.engine.launch import launch
from reglet.engine.plan import plan


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """190 images, too few for a batch of 256."""
    path = tmp_path_factory.mktemp("few") / "few.npz"
    images = np.random.default_rng(0).integers(0, 255, (190, 16, 16, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(190) % 2)
    return path


def config(few: Path, **more: object) -> Config:
    small = {"model": "convnet", "projector": "16-8", "options": {"loss.slices": 8, "views.n_local": 0}}
    return Config(data=str(few), out="x", **{**small, **more})


def test_a_small_folder_trains_with_what_the_command_chooses(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(budget, "EPOCHS", 2)
    words = [f"data={few}", "projector=16-8", "loss.slices=8", "views.n_local=0", "knn_every=0", "accelerator=cpu"]
    assert main(["pretrain", *words, f"out={tmp_path / 'a'}"]) == 0
    said = capsys.readouterr().err
    for text in ("152 images, 2 classes, 38 test images", "8 steps of 32* images", "2* epochs", "lr 0.001*", "convnet*",
                 "16* px", "GB of memory, measured on", "too few to mean anything", "* by default"):  # fmt: skip
        assert text in said
    stored = json.loads((tmp_path / "a" / "config.json").read_text())
    assert (stored["batch"], stored["epochs"], stored["micro_batch"]) == (32, 2, 0)

    # Measuring leaves no trace: told the same numbers, a run that measures nothing has the same weights.
    monkeypatch.setattr("reglet.train.settle", lambda asked, parts, fabric: (asked, None))
    assert main(["pretrain", *words, "batch=32", "epochs=2", f"out={tmp_path / 'b'}"]) == 0
    a, b = (load_file(tmp_path / name / "checkpoint.safetensors") for name in "ab")
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert "32 images" in capsys.readouterr().err  # given, so without a star


def test_what_is_given_is_obeyed(few: Path) -> None:
    asked = config(few, batch=20, epochs=3, micro_batch=5)
    found, measured = settle(asked, build_parts(asked), launch(asked))
    assert found == asked
    assert measured is not None


def test_epochs_fit_into_the_time(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = config(few, knn_every=0)
    parts, fabric = build_parts(asked), launch(asked)
    monkeypatch.setattr(budget, "measure", lambda *_: Budget(images=2, seconds=0.1, held=0, each=0.0))
    found, measured = settle(asked, parts, fabric)
    assert found.epochs == int(240 / (4 * 32 * 0.1))  # four batches of 32 an epoch
    said = plan(parts, found, asked, measured, fabric.device)
    assert "about 3 min 50 s" in said
    assert "100 epochs would take 21 min 20 s: epochs=100" in said
    assert settle(replace(asked, steps=7), parts, fabric)[0].epochs == 100


def test_memory_is_what_autograd_keeps() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh())
    with kept_bytes(net) as kept:
        net(torch.zeros(4, 10))
    assert sum(kept.values()) == 4 * (4 * 10 + 4 * 20)  # the input of the product and the output of tanh
    assert (free_memory(torch.device("cpu")) or 0) > 1e6


def test_memory_decides_for_micro_batches(few: Path) -> None:
    plain = config(few, batch=64, model="vit_mini", projector="8")  # without batch norm
    parts = build_parts(plain)
    assert exact_in_parts(parts.method)
    measured = Budget(images=2, seconds=1.0, held=100, each=10.0)  # 13 bytes an image

    def fit(asked: Config, free: int, *, open_: bool = False) -> Config:
        there = build_parts(asked)
        return within_memory(asked, there, measured, free=free, world=1, batch_is_open=open_)

    assert fit(plain, 10_000) == plain
    assert fit(plain, 1000).micro_batch == 32  # 100 + 13 x 32 = 516 of 700
    normed = config(few, batch=64)
    assert not exact_in_parts(build_parts(normed).method)
    assert fit(normed, 1000, open_=True).batch == 32
    assert fit(normed, 1000) == normed  # it is tight, but was asked for
    with pytest.raises(ValueError, match=r"batch=64 needs .* batch=32 fits, micro_batch=32 too, with batch norm"):
        fit(normed, 900)
    with pytest.raises(ValueError, match=r"micro_batch=64 needs .* micro_batch=32 fits"):
        fit(replace(plain, micro_batch=64), 900)
    with pytest.raises(ValueError, match="two images at a time need"):
        fit(plain, 100)
    assert fit(plain, 1000) != plain
    assert within_memory(plain, parts, measured, free=None, world=1, batch_is_open=False) == plain
