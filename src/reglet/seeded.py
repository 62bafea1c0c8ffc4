"""Random numbers for a while: the global generators start at a seed inside, and outside nothing has happened."""

from collections.abc import Iterator
from contextlib import contextmanager

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
    with torch.random.fork_rng(devices=_gpus(device)):
        reseed(seed, device)
        yield


def reseed(seed: int, device: torch.device | str = "cpu") -> None:
    """Start the generators of the CPU and of `device` at `seed`, and leave those of other GPUs alone."""
    torch.default_generator.manual_seed(seed)
    for i in _gpus(device):
        torch.cuda.default_generators[i].manual_seed(seed)


def _gpus(device: torch.device | str) -> list[int]:
    device = torch.device(device)
    if device.type != "cuda":
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]
