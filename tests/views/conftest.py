from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="session")
def v2(torchvision: ModuleType) -> ModuleType:
    """torchvision's transforms; the fixture it asks for makes torchvision importable."""
    return pytest.importorskip("torchvision.transforms.v2")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
