"""Random numbers for a while: the global generators start at a seed inside, and outside nothing has happened."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """The generators of the CPU and of `device` alone.  `torch.manual_seed` would seed those of every GPU, for good.

    >>> before = torch.get_rng_state()
    >>> with seeded(0):
    ...     x = torch.rand(2)
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    device = torch.device(device)
    with torch.random.fork_rng(devices=_gpus(device)):
        before = _only(device).get_rng_state() if device.type not in ("cpu", "cuda", "meta") else None
        reseed(seed, device)
        try:
            yield
        finally:
            if before is not None:
                _only(device).set_rng_state(before)


def reseed(seed: int, device: torch.device | str = "cpu") -> None:
    """Start the generators of the CPU and of `device` at `seed`, and leave those of other GPUs alone."""
    device = torch.device(device)
    torch.default_generator.manual_seed(seed)
    for i in _gpus(device):
        torch.cuda.default_generators[i].manual_seed(seed)
    if device.type not in ("cpu", "cuda", "meta"):
        _only(device).manual_seed(seed)


def _only(device: torch.device) -> Any:
    """torch's module of a kind of which a machine has one, such as MPS."""
    return torch.get_device_module(device)


def _gpus(device: torch.device) -> list[int]:
    if device.type != "cuda":
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]
