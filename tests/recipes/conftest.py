from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Colours that depend on the class, under noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(500) % 10
    images = rng.integers(0, 128, (500, 16, 16, 3)) + rng.integers(0, 128, (10, 1, 1, 3))[labels]
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    np.savez(path, images=images.astype(np.uint8), labels=labels.astype(np.uint8), split=np.arange(500) // 400)
    return path


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the recipe's workers, so that results can be compared bit by bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
