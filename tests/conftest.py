"""Networks that nobody here wrote, where they are installed."""

import sys
from types import ModuleType

import pytest
import torch

_kept: list[torch.library.Library] = []  # a Library takes its definitions with it when it is collected


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    """torchvision.  A build whose compiled operators do not fit this torch fails on import, registering fakes for
    operators that do not exist; declaring the two names is enough for the networks."""
    try:
        return pytest.importorskip("torchvision.models")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    return pytest.importorskip("torchvision.models")


@pytest.fixture(scope="session")
def timm(torchvision: ModuleType) -> ModuleType:
    return pytest.importorskip("timm")
