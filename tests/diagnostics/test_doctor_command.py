"""`reglet doctor`: runs on disk, and what is said about them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from reglet.cli.doctor import doctor
from reglet.diagnostics.verdict import Verdict
from reglet.engine.config import from_flat
from reglet.engine.run_folder import RunError
from reglet.evaluate.examine import examine
from reglet.train import run


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two colours, one pattern each image's own."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 200, (600, 4, 4, 3)).repeat(4, 1).repeat(4, 2)
    images = (coarse + rng.integers(0, 50, (600, 16, 16, 3))).astype(np.uint8)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, images=images, labels=np.arange(600) % 2, split=np.arange(600) // 300)
    return path


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    common = {
        "data": str(data),
        "model": "convnet",
        "projector": "64-16",
        "epochs": 12,
        "batch": 50,
        "accelerator": "cpu",
    }
    common |= {"knn_every": 0, "lr": 3e-3, "views": "digits"}
    for name, more in {
        "visreg": {"loss.slices": 64, "loss.lam": 0.6},
        "averaged": {"loss.slices": 64, "loss.lam": 0.6, "ema": 0.9},
        "free": {"loss.slices": 64, "loss.lam": 0.0},
        "byol": {"method": "byol", "projector": ""},
    }.items():
        run(from_flat({"method": "visreg", **common, **more, "out": str(folder / name)}), shown=False)
    given = {key: value for key, value in common.items() if key not in ("projector", "views")}
    run(from_flat({"command": "train", **given, "out": str(folder / "labels")}), shown=False)
    return folder


def test_a_healthy_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor([str(runs / "visreg")]) == 0
    said = capsys.readouterr().out
    assert "visreg: healthy" in said
    assert "features: effective rank" in said
    assert max(map(len, said.splitlines()[:6])) <= 80 + len(str(runs))
    stored = json.loads((runs / "visreg" / "doctor.json").read_text())
    assert stored["verdict"] == "healthy"
    assert stored["exit_code"] == 0
    assert stored["numbers"]["features.n"] == 300
    assert 0.05 < stored["numbers"]["regularizer.share"] < 0.95
    assert stored["numbers"]["batch_share"] < 0.25
    assert examine(runs / "visreg").numbers == stored["numbers"]  # the same again


def test_a_run_without_a_regularizer_is_sick(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor([f"run={runs / 'free'}"]) == 1
    said = capsys.readouterr().out
    assert "negligible regularizer" in said
    assert "next " in said


@pytest.mark.parametrize("name", ["byol", "averaged", "labels"])
def test_other_kinds_of_runs(name: str, runs: Path) -> None:
    verdict = examine(runs / name)
    assert verdict.exit_code == 0, verdict.findings
    assert ("views.auc" in verdict.numbers) == (name != "labels")


def test_the_moving_average_is_what_is_looked_at(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "averaged", tmp_path / "a")
    spoil(tmp_path / "a" / "checkpoint.safetensors", "ema.module.backbone.")
    assert examine(tmp_path / "a").name == "complete collapse"


def spoil(path: Path, prefix: str) -> None:
    """Make every image the same to the backbone: batch norms that scale by nothing."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        about = file.metadata()
    tensors = load_file(path)
    for key, value in tensors.items():
        if key.startswith(prefix) and key.endswith(".1.weight"):
            tensors[key] = torch.zeros_like(value)
        if key.startswith(prefix) and key.endswith(".1.bias"):
            tensors[key] = torch.ones_like(value)
    save_file(tensors, path, metadata=about)


def test_damaged_weights_are_found(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "visreg", tmp_path / "a")
    spoil(tmp_path / "a" / "checkpoint.safetensors", "method.backbone.")
    verdict = examine(tmp_path / "a")
    assert verdict.name == "complete collapse"
    assert verdict.exit_code == 1


def test_an_exported_encoder(runs: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("encoder.safetensors", "card.json"):
        shutil.copy(runs / "visreg" / name, tmp_path)
    assert doctor([str(tmp_path), f"data={data}"]) == 0
    assert doctor([str(tmp_path), f"data={data}", "images=20"]) == 4
    assert "too few samples to judge" in capsys.readouterr().out
    with pytest.raises(RunError, match="has no data of its own: give data="):
        examine(tmp_path)


def slices_of(runs: Path, tmp_path: Path, **more: object) -> Verdict:
    """The run, as if several devices had made it."""
    shutil.copytree(runs / "visreg", tmp_path / "a")
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    (tmp_path / "a" / "config.json").write_text(json.dumps(config | more))
    return examine(tmp_path / "a")


def test_ranks_that_share_slices_and_not_their_samples(runs: Path, tmp_path: Path) -> None:
    verdict = slices_of(runs, tmp_path, devices=2, **{"loss.gather": False, "loss.shared_slices": True})
    assert verdict.name == "ranks draw the same slices"
    assert verdict.numbers["batch"] == 25


@pytest.mark.parametrize("options", [{}, {"loss.gather": False, "loss.shared_slices": False}])
def test_ranks_that_share_both_or_neither(options: dict[str, object], runs: Path, tmp_path: Path) -> None:
    assert slices_of(runs, tmp_path, devices=2, **options).name == "healthy"


def test_bad_input_says_so(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no directory of a run or of an exported encoder"):
        examine(tmp_path)
    with pytest.raises(ValueError, match="needs an encoder"):
        doctor([])
    with pytest.raises(ValueError, match=r"unknown key 'image'. Did you mean images="):
        doctor([str(tmp_path), "image=3"])
    with pytest.raises(ValueError, match="images is a whole number, at least 0; got 'many'"):
        doctor([str(tmp_path), "images=many"])
    with pytest.raises(ValueError, match="two images or more; got images=1"):
        examine(runs / "visreg", images=1)
    shutil.copytree(runs / "visreg", tmp_path / "a")
    (tmp_path / "a" / "checkpoint.safetensors").unlink()
    with pytest.raises(RunError, match="has no checkpoint yet"):
        examine(tmp_path / "a")
    shutil.copy(runs / "byol" / "checkpoint.safetensors", tmp_path / "a")
    with pytest.raises(RunError, match="is not of what its configuration builds"):
        examine(tmp_path / "a")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(["--help"]) == 0
    assert "Exit code: 0 healthy" in capsys.readouterr().out
