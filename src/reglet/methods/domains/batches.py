"""Batches with the same number of samples from every domain."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Batches:
    """`per_domain` samples of each domain in every batch, as a function of (seed, step) only.

    domain: the domain of each training sample, as an id.
    The samples of a domain come in permutations, one after another.  So small domains are repeated more often, and each
    sample of a domain equally often.

    Domains take turns within a batch.  So the contiguous part that a rank gets is balanced too, if the number of ranks
    divides `per_domain`.

    >>> batches = Batches(torch.tensor([0, 0, 2, 0, 2]), per_domain=2, seed=0)
    >>> batches.batch, batches.domain[batches.indices(0)].tolist()
    (4, [0, 2, 0, 2])
    """

    domain: Int64[Tensor, "n"]
    per_domain: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.per_domain < 1 or not len(self.domain):
            raise ValueError(f"expected samples and per_domain >= 1, got {len(self.domain)} and {self.per_domain}")

    @cached_property
    def members(self) -> list[Int64[Tensor, "_"]]:
        """The samples of each domain."""
        return [(self.domain == d).nonzero()[:, 0] for d in self.domain.unique()]

    @property
    def batch(self) -> int:
        return self.per_domain * len(self.members)

    @property
    def per_epoch(self) -> int:
        """The number of steps that draw as many samples as there are."""
        return max(1, len(self.domain) // self.batch)

    def indices(self, step: int) -> Int64[Tensor, "b"]:
        """The batch of step `step`, counted from 0."""
        return torch.stack([self._some(e, step) for e in range(len(self.members))], dim=1).flatten()

    def _some(self, e: int, step: int) -> Int64[Tensor, "p"]:
        members = self.members[e]
        n, first = len(members), step * self.per_domain
        epochs = range(first // n, (first + self.per_domain - 1) // n + 1)
        order = torch.cat([self._permutation(e, epoch, n) for epoch in epochs])
        start = first - epochs[0] * n
        return members[order[start : start + self.per_domain]]

    def _permutation(self, e: int, epoch: int, n: int) -> Int64[Tensor, "n"]:
        return torch.from_numpy(np.random.default_rng((self.seed, e, epoch)).permutation(n))
