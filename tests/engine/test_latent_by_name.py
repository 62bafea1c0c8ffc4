"""A latent loss by name: `reglet train latent=latentdr latent.dropout=0`, and its places on the page."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from reglet.backbones import ConvNet
from reglet.cli import main
from reglet.latent import LatentDR
from reglet.method import Batch
from reglet.methods import Supervised
from reglet.report.gather import gather


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "x.npz"
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (60, 16, 16, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(60) % 3, split=(np.arange(60) % 4 == 3).astype(int))
    return path


def words(data: Path, out: Path) -> list[str]:
    return ["train", f"data={data}", "model=convnet", "batch=15", "epochs=2", "accelerator=cpu", f"out={out}"]


def test_terms_are_logged_and_the_page_has_the_places(data: Path, tmp_path: Path) -> None:
    assert main([*words(data, tmp_path / "a"), "latent=latentdr", "latent.dropout=0.0", "log_every=1"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    assert any({"original", "degraded", "restored"} <= set(row) for row in rows)
    found = gather(tmp_path / "a", robust_images=0)
    assert found.latents is not None
    assert list(found.latents.maps["PCA"]) == ["latent", "degraded", "restored"]


@pytest.mark.parametrize("name", ["batchformer", "noise"])
def test_every_name_trains(name: str, data: Path, tmp_path: Path) -> None:
    assert main([*words(data, tmp_path / "a"), f"latent={name}"]) == 0


def test_it_is_the_loss_on_latents_labels_and_the_classifier() -> None:
    torch.manual_seed(0)
    dr = LatentDR(8, dropout=0.0)
    method = Supervised(ConvNet(widths=(4, 8)), classes=3, latent=dr).eval()
    views, y = torch.randn(2, 6, 3, 16, 16), torch.arange(6) % 3
    terms = method(Batch(list(views), n_global=2, labels=y))
    z = torch.cat([method.encode(view) for view in views])
    expected = dr.terms(z, y.repeat(2), method.head)
    assert terms.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(terms[key], value)


@pytest.mark.parametrize(
    ("command", "more", "says"),
    [
        ("train", ["latent=latentd"], "there is no latent loss 'latentd'. Did you mean 'latentdr'?"),
        ("train", ["latent.dropout=0.1"], "arguments of what latent= names: give latent= too"),
        ("train", ["latent=latentdr", "latent.dropot=0.1"], "Did you mean latent.dropout="),
        ("train", ["latent=latentdr", "method.label_smoothing=0.1"], "label_smoothing=0.1 would be lost"),
        ("pretrain", ["latent=latentdr"], "it is for reglet train"),
    ],
)
def test_bad_input(
    command: str, more: list[str], says: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *words(data, tmp_path / "a")[1:], *more]) == 2
    assert says in capsys.readouterr().err
