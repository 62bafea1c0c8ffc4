"""What runs an encoder after training gives on the device what it gives on the CPU, in halves of a batch too."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reglet import compare
from reglet.cli import main
from reglet.engine.build import build_parts
from reglet.engine.run_folder import read_run
from reglet.evaluate import embed, evaluation, examine, one, predict
from reglet.evaluate.compute import Compute, compute
from reglet.evaluate.robust import robust_encoder
from reglet.evaluate.source import open_source

SMALL = ["data=digits", "model=convnet", "labels=60", "batch=20", "epochs=1", "size=16", "knn_every=0"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert main(["train", *SMALL, "accelerator=cpu", f"out={out}"]) == 0
    return out


@pytest.fixture
def there(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Compute], None]]:
    """What accelerator= says, for a device that the command line does not know."""

    def put(where: Compute) -> None:
        for module in (embed, one, examine, predict):
            monkeypatch.setattr(module, "compute", lambda **keys: where)

    return put


def places(device: torch.device) -> dict[str, Compute]:
    cpu = torch.device("cpu")
    return {
        "cpu": Compute(),
        "device": Compute((device,)),
        "two": Compute((device, device)),
        "far": Compute((cpu, device)),
    }


def _close(a: Any, b: Any, *, tolerance: float) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in set(a) - {"seconds"}:
            _close(a[key], b[key], tolerance=tolerance)
    elif isinstance(a, float):
        assert b == pytest.approx(a, rel=tolerance, abs=tolerance)


ASKED: dict[str, Callable[[Path, Path], Any]] = {
    "eval": lambda r, out: one.evaluate_run(r, data="digits", probes=["knn", "ridge"], out=out / "x.json").json(),
    "doctor": lambda r, out: examine.examine(r, images=40).numbers,
    "predict": lambda r, out: predict.predict(r).probabilities.sum(0).tolist(),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_command(trained: Path, device: torch.device, there: Any, tmp_path: Path, name: str) -> None:
    found = []
    for where in places(device).values():
        there(where)
        found.append(ASKED[name](trained, tmp_path))
    for other in found[1:]:
        _close(found[0], other, tolerance=0.02)  # a neighbour or two of 400 images may change places


def test_robustness(trained: Path, device: torch.device) -> None:
    encoder = open_source(trained)
    found = [
        robust_encoder(encoder, *encoder.pair(""), severities=(3,), images=20, compute=where).json()
        for where in places(device).values()
    ]
    for other in found[1:]:
        _close(found[0], other, tolerance=0.02)


def test_features(trained: Path, device: torch.device, there: Any, tmp_path: Path) -> None:
    x = {}
    for name, where in places(device).items():
        there(where)
        embed.embed(trained, "digits", tmp_path / f"{name}.npz", split="test", batch=64)
        x[name] = np.load(tmp_path / f"{name}.npz")["features"]
    for features in x.values():
        np.testing.assert_allclose(features, x["cpu"], rtol=1e-4, atol=1e-5)


def test_a_compared_run(trained: Path, device: torch.device) -> None:
    parts = build_parts(read_run(trained)[0])
    here, away = (compare.score(trained, parts, where=Compute((place,))) for place in (torch.device("cpu"), device))
    _close(here, away, tolerance=0.02)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_precisions(trained: Path, precision: str, tmp_path: Path) -> None:
    """The encoder itself is not rounded."""
    found = one.evaluate_run(
        trained, probes=["knn"], accelerator="cpu", precision=precision, out=tmp_path / "x.json"
    ).json()
    plain = one.evaluate_run(trained, probes=["knn"], accelerator="cpu", out=tmp_path / "y.json").json()
    assert found["probes"]["knn"]["accuracy"] == pytest.approx(plain["probes"]["knn"]["accuracy"], abs=0.1)
    assert found["representation"] != plain["representation"]


def test_the_keys_are_checked(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("eval", "embed", "robust", "doctor", "predict"):
        words = [f"run={trained}", "data=digits", *(["out=x.npz"] if command == "embed" else [])]
        for word, says in {
            "accelerator=tpu": "accelerator is one of auto, cpu, cuda, mps; got 'tpu'",
            "precision=8": "precision is one of",
            "devices=0": "devices is a whole number, at least 1",
        }.items():
            assert main([command, *words, word]) == 2
            assert says in capsys.readouterr().err
    with pytest.raises(ValueError, match="a CPU is one with all of its cores"):
        compute(accelerator="cpu", devices=2)
    assert json.loads((trained / "config.json").read_text())["accelerator"] == "cpu"
    assert Compute() == evaluation.CPU
