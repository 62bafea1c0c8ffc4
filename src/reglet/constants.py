"""Tensors that depend on sizes alone: made on a device once, kept there.

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

MOST = 64  # tensors of one function


@runtime_checkable
class Constant(Protocol):
    def __call__(self, *sizes: Any, like: Tensor) -> Tensor: ...


def kept_on_device(make: Callable[..., Tensor]) -> Constant:
    """`make` is a function of plain values and of a device.  The new function takes `like` instead, a tensor there.

    A fake tensor (torch.export, counters of FLOPs and memory) is neither kept nor answered with a kept one.  A tensor
    made in inference mode could not be saved for backward, so that mode is off while `make` runs.
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
