"""Half precision becomes float32 here, and autocast is off: statistics of a batch need the digits.

    with no_autocast(z):
        loss = statistics(at_least_float32(z))

Autocast alone is not enough: it leaves a bfloat16 input in bfloat16.  The cast alone is not enough either: inside
autocast a product of two float32 matrices is computed in half precision.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Floating-point numbers of fewer than 32 bits as float32; any other tensor as it is."""
    return x.float() if x.is_floating_point() and x.dtype.itemsize < 4 else x


def of_one_dtype(tensors: Sequence[Tensor]) -> list[Tensor]:
    """float32 at least, and the widest of them where they differ."""
    wide = [at_least_float32(x) for x in tensors]
    widest = torch.float64 if any(x.dtype == torch.float64 for x in wide) else wide[0].dtype
    return [x.to(widest) for x in wide]


def no_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Autocast switched off on the device of `x`; nothing where it is off already, or unknown there (meta)."""
    kind = x.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def in_float64(x: Tensor) -> Tensor:
    """x as float64: on its device or, where that has no such numbers (MPS), on the host."""
    return x.double() if has_float64(x.device) else x.cpu().double()


def has_float64(device: torch.device) -> bool:
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except TypeError:
        return False
    return True
