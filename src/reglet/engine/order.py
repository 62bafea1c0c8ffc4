"""The samples and random numbers of a step, as a function of (seed, step) only.

So a resumed run needs only its step number.  Everything is drawn for the global batch, and each rank takes its slice,
so W ranks see the samples and views that one process would see.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

ORDER, VIEWS, NOISE = 0, 1, 2  # independent streams of one seed


def seed_of(*numbers: int) -> int:
    """A 63-bit seed from several natural numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def generator(*numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*numbers))


@dataclass(frozen=True)
class Shuffled:
    """`n` samples in batches of `batch`.  Every epoch is a permutation; its last, incomplete batch is left out.

    >>> order = Shuffled(n=5, batch=2, seed=0)
    >>> order.per_epoch, len(order.indices(7))
    (2, 2)
    """

    n: int
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if self.n < self.batch:
            raise ValueError(f"batch {self.batch} is larger than the data, which have {self.n} images")

    @property
    def per_epoch(self) -> int:
        return self.n // self.batch

    def indices(self, step: int) -> Int64[Tensor, " b"]:
        """The global batch of step `step`, counted from 0."""
        epoch, i = divmod(step, self.per_epoch)
        return _permutation(self.n, self.seed, epoch)[i * self.batch : (i + 1) * self.batch]


@lru_cache(maxsize=4)
def _permutation(n: int, seed: int, epoch: int) -> Int64[Tensor, " n"]:
    return torch.randperm(n, generator=generator(seed, ORDER, epoch), device="cpu")


@dataclass(frozen=True)
class WithReplacement:
    """`batch` of `n` samples, drawn with replacement: for sets that are smaller than a batch of random crops."""

    n: int
    batch: int
    seed: int

    @property
    def per_epoch(self) -> int:
        return max(1, self.n // self.batch)

    def indices(self, step: int) -> Int64[Tensor, " b"]:
        return torch.randint(self.n, (self.batch,), generator=generator(self.seed, ORDER, step), device="cpu")


def rank_slice(batch: int, rank: int, world: int) -> slice:
    """The part of the global batch that belongs to `rank`."""
    each = batch // world
    return slice(rank * each, (rank + 1) * each)
