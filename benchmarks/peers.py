"""lightly, where it is installed, called so that it computes what reglet computes on the same views and slices."""

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest.mock import patch

import torch
from torch import Tensor

_torchvision_ops: list[torch.library.Library] = []  # a definition lives as long as its library


def lightly_version() -> str | None:
    return importlib.metadata.version("lightly") if importlib.util.find_spec("lightly") else None


def lightly_losses() -> ModuleType | None:
    """lightly.loss, or None where lightly is not installed."""
    if lightly_version() is None:
        return None
    declare_torchvision_ops()
    import lightly.loss

    loss: ModuleType = lightly.loss
    return loss


@contextmanager
def slices(w: Tensor | None) -> Iterator[None]:
    """lightly draws its slices by torch.randn(d, k); here it gets `w` (k, d), so that values can be compared."""
    if w is None:
        yield
        return

    def given(*size: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
        return w.T.clone().reshape(size).to(device=device, dtype=dtype)

    with patch("torch.randn", given):
        yield


def declare_torchvision_ops() -> None:
    """A torchvision without its compiled half fails at import for want of two operators that no loss calls."""
    if _torchvision_ops or hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _torchvision_ops.append(library)
