"""Tensors that depend only on sizes.  They are made once on each device, and kept there.

@kept_on_device
def table(h: int, w: int, *, device: torch.device) -> Tensor: ...

table(4, 6, like=x)        # on the device of x
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

MOST = 64  # kept tensors of one function


@runtime_checkable
class Constant(Protocol):
    def __call__(self, *sizes: Any, like: Tensor) -> Tensor: ...


def kept_on_device(make: Callable[..., Tensor]) -> Constant:
    """A decorator for a function of plain values and a device.  The new function takes a tensor `like` for the device.

    Fake tensors (torch.export, counters of FLOPs and memory) are not kept, and get no kept tensor.  Inference mode is
    off while `make` runs, because a tensor made in it could not be saved for backward.
    """
    kept: dict[tuple[Any, ...], Tensor] = {}

    @wraps(make)
    def get(*sizes: Any, like: Tensor) -> Tensor:
        key = (*sizes, like.device)
        if key in kept and not isinstance(like, FakeTensor):
            return kept[key]
        with torch.inference_mode(False):
            value = make(*sizes, device=like.device)
        if not isinstance(value, FakeTensor):
            while len(kept) >= MOST:
                del kept[next(iter(kept))]
            kept[key] = value
        return value

    return get
