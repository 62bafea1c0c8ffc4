"""Seeds the global generators inside a block, and restores them afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seeds the generators of the CPU and of `device`.  `torch.manual_seed` would seed every GPU, for good.

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
    """Seed the generators of the CPU and of `device`, but not those of other GPUs."""
    device = torch.device(device)
    torch.default_generator.manual_seed(seed)
    for i in _gpus(device):
        torch.cuda.default_generators[i].manual_seed(seed)
    if device.type not in ("cpu", "cuda", "meta"):
        _only(device).manual_seed(seed)


def _only(device: torch.device) -> Any:
    """torch's module for a kind of device of which a machine has one, such as MPS."""
    return torch.get_device_module(device)


def _gpus(device: torch.device) -> list[int]:
    if device.type != "cuda":
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]
