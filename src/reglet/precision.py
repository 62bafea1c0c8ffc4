"""Half precision becomes float32 here, and autocast is switched off, because statistics of a batch need the digits.

    with no_autocast(z):
        loss = statistics(at_least_float32(z))

Both are needed.  Without autocast, a bfloat16 input would still be bfloat16.  With the cast only, autocast would
compute a product of two float32 matrices in half precision.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Floating-point numbers of fewer than 32 bits become float32.  Any other tensor stays as it is."""
    return x.float() if x.is_floating_point() and x.dtype.itemsize < 4 else x


def of_one_dtype(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in float32 at least, and all in the widest of their types."""
    wide = [at_least_float32(x) for x in tensors]
    widest = torch.float64 if any(x.dtype == torch.float64 for x in wide) else wide[0].dtype
    return [x.to(widest) for x in wide]


def no_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Switch autocast off on the device of `x`.  Nothing happens if it is off, or if the device has none (meta).

    Products of float32 are computed in full, even if TF32 is allowed outside (`torch.set_float32_matmul_precision`).
    """
    kind = x.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    off = torch.autocast(kind, enabled=False) if on else nullcontext()
    return off if _products_are_full() else _full(off)


def _products_are_full() -> bool:
    """A compiled method has one precision; `reglet.engine.settings` makes sure that it is full."""
    return torch.compiler.is_compiling() or torch.get_float32_matmul_precision() == "highest"


@contextmanager
def _full(off: AbstractContextManager[object]) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with off:
            yield
    finally:
        torch.set_float32_matmul_precision(before)


class FullBackward:
    """Full products in the backward pass of one part of a graph, which starts at `leave` and ends at `enter`.

    The switch acts on the whole process.  So it holds in autograd's other threads, and also for other nodes that are
    computed in between.
    """

    def __init__(self) -> None:
        self.before = torch.get_float32_matmul_precision()

    @staticmethod
    def if_needed() -> "FullBackward | None":
        return None if _products_are_full() else FullBackward()

    def enter(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = _Switch.apply(self.before, *tensors)
        return out

    def leave(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = _Switch.apply("highest", *tensors)
        return out


class _Switch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, precision: str, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.precision = precision
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        torch.set_float32_matmul_precision(ctx.precision)
        return None, *gradients


def unit_length(x: Tensor, *, dim: int = -1) -> Tensor:
    """x / |x| along `dim`, for numbers of any size.  Zeros stay zeros.

    `F.normalize` alone would make 0 of float32 numbers above 1e19, whose squares overflow, and would not scale rows
    below 1e-12.
    """
    largest = x.abs().amax(dim, keepdim=True)
    return F.normalize(x / largest.where(largest > 0, 1), dim=dim)


def in_float64(x: Tensor) -> Tensor:
    """x as float64, on its device or, if that has no float64 (MPS), on the host."""
    return x.double() if has_float64(x.device) else x.cpu().double()


def has_float64(device: torch.device) -> bool:
    if device.type in ("cpu", "cuda"):
        return True
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except TypeError:
        return False
    return True
