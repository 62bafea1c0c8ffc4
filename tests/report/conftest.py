"""Small runs to report on, made once."""

from pathlib import Path

import numpy as np
import pytest
import torch

from reglet.cli import main

CLASSES = ["<img src=x onerror=alert(1)>", "<script>alert(2)"]  # names that a page must not obey
DOMAINS = ['"{{7*7}}', "$a$ & b"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ and test/, in each domain/class/*.png: a class is a bright half, a domain a colour."""
    from PIL import Image

    root = tmp_path_factory.mktemp("data") / "photos"
    rng = np.random.default_rng(0)
    for split, count in (("train", 14), ("test", 9)):
        for d, domain in enumerate(DOMAINS):
            for c, name in enumerate(CLASSES):
                folder = root / split / domain / name
                folder.mkdir(parents=True)
                for i in range(count):
                    pixels = rng.integers(0, 120, (16, 16, 3), dtype=np.uint8)
                    pixels[8 * c : 8 * c + 8, :, d] += 120
                    Image.fromarray(pixels).save(folder / f"it's <{i}>.png")
    return root


def pretrain(out: Path, data: Path, *more: str) -> Path:
    small = ["model=convnet", "projector=16-8", "epochs=2", "batch=16", "accelerator=cpu", "loss.slices=16"]
    words = {word.partition("=")[0]: word for word in (*small, "log_every=1", *more)}
    assert main(["pretrain", f"data={data}", f"out={out}", *words.values()]) == 0
    return out


@pytest.fixture(scope="session")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(tmp_path_factory.mktemp("runs") / "<i>first", photos)


@pytest.fixture(scope="session")
def other(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(tmp_path_factory.mktemp("runs") / "second", photos, "seed=1", "model=vit_mini")


@pytest.fixture(scope="session")
def unlabelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    images = np.random.default_rng(1).integers(0, 255, (40, 16, 16, 3), dtype=np.uint8)
    folder = tmp_path_factory.mktemp("unlabelled")
    np.savez(folder / "x.npz", images=images)
    return pretrain(folder / "run", folder / "x.npz")
