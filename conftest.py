"""One thread for each process of a parallel test run; networks that nobody here wrote, where they are installed."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:  # there are as many processes as cores
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start

# examples in docstrings whose libraries import torchvision
NEED_TORCHVISION = tuple(f"reglet.backbones.{name}." for name in ("timm", "transformers", "load_transformers", "lora"))
_kept: list[torch.library.Library] = []  # a Library takes its definitions with it when it is collected


def pytest_collect_file(file_path: Path) -> None:
    """Lightning imports torchvision, and `--doctest-modules` imports our callbacks for it when it collects."""
    if file_path.parts[-2:] == ("integrations", "lightning.py") and find_spec("torchvision"):
        import_torchvision()


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    return import_torchvision()


def import_torchvision() -> ModuleType:
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


@pytest.fixture(scope="session")
def transformers(torchvision: ModuleType) -> ModuleType:
    """transformers, which imports torchvision for its vision models where it is installed."""
    return pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _timm_for_its_example(request: pytest.FixtureRequest) -> None:
    if request.node.name.startswith(NEED_TORCHVISION):
        request.getfixturevalue("timm")
