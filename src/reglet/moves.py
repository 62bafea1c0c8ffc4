"""From the host to a device in one copy, without waiting for it."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

_ALIGNED = 8  # bytes: every tensor of a pack begins where any dtype may


def moved(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """The tensors on `device`.  Those of the host travel packed into one pinned tensor: a small copy costs a GPU as
    much as a kernel, and the host waits for one from memory that is not pinned.

    >>> a, b = moved([torch.arange(3), torch.ones(2, 2)], torch.device("cpu"))
    >>> a.dtype, tuple(b.shape)
    (torch.int64, (2, 2))
    """
    if device.type == "cpu":
        return [x.to(device) for x in tensors]
    packed = _packed([x for x in tensors if x.device.type == "cpu"], device)
    return [next(packed) if x.device.type == "cpu" else x.to(device) for x in tensors]


def _packed(tensors: Sequence[Tensor], device: torch.device) -> Iterator[Tensor]:
    sizes = [x.numel() * x.element_size() for x in tensors]
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + -(-size // _ALIGNED) * _ALIGNED)
    host = torch.empty(ends[-1], dtype=torch.uint8, device="cpu", pin_memory=_pins(device))
    for x, start, size in zip(tensors, ends, sizes, strict=False):
        host[start : start + size].view(x.dtype).view(x.shape).copy_(x)
    there = host.to(device, non_blocking=True)
    for x, start, size in zip(tensors, ends, sizes, strict=False):
        yield there[start : start + size].view(x.dtype).view(x.shape)


def _pins(device: torch.device) -> bool:
    """MPS shares its memory with the host."""
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return here is not None and here.type == device.type != "mps"
