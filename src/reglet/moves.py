"""Copies tensors from the host to a device in one copy, without waiting for it."""

from collections.abc import Sequence

import torch
from torch import Tensor

_ALIGNED = 64  # bytes: alignment of the tensors in a pack, so that kernels may read several numbers at once


def moved(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """The tensors on `device`.  Those of the host are packed into one pinned tensor, because a small copy costs a GPU
    as much as a kernel, and the host waits for copies from memory that is not pinned.

    >>> a, b = moved([torch.arange(3), torch.ones(2, 2)], torch.device("cpu"))
    >>> a.dtype, tuple(b.shape)
    (torch.int64, (2, 2))
    """
    if device.type == "cpu":
        return [x.to(device) for x in tensors]
    packed = iter(Pack([x for x in tensors if x.device.type == "cpu"], device).send())
    return [next(packed) if x.device.type == "cpu" else x.to(device) for x in tensors]


class Pack:
    """Host tensors side by side in pinned memory.  It can be made ahead, in another thread."""

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        self.tensors, self.device = list(tensors), device
        self.host: Tensor | None = None
        if device.type == "cpu" or not tensors:
            return
        self.sizes = [x.numel() * x.element_size() for x in tensors]
        self.starts = [0]
        for size in self.sizes:
            self.starts.append(self.starts[-1] + -(-size // _ALIGNED) * _ALIGNED)
        self.host = torch.empty(self.starts[-1], dtype=torch.uint8, device="cpu", pin_memory=_pins(device))
        for x, place in zip(self.tensors, self._places(self.host), strict=True):
            place.copy_(x)

    def send(self) -> list[Tensor]:
        """The tensors on the device, as parts of one tensor."""
        if self.host is None:
            return list(self.tensors)
        return self._places(self.host.to(self.device, non_blocking=True))

    def _places(self, flat: Tensor) -> list[Tensor]:
        cuts = zip(self.tensors, self.starts, self.sizes, strict=False)
        return [flat[start : start + size].view(x.dtype).view(x.shape) for x, start, size in cuts]


def _pins(device: torch.device) -> bool:
    """MPS shares its memory with the host."""
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return here is not None and here.type == device.type != "mps"
