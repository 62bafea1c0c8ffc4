"""The squared 2-Wasserstein distance in one dimension, between n samples and the standard normal."""

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet.threads import memory

Positions = Literal["weibull", "hazen"]


@lru_cache(maxsize=64)
def normal_quantiles(
    n: int, positions: Positions, clamp: float, device: torch.device, dtype: torch.dtype
) -> Float[Tensor, "n"]:
    """q_i = Phi^-1(i / (n + 1)) ("weibull", the paper's) or Phi^-1((i - 1/2) / n) ("hazen", nearer unit variance).

    Built in float64: in bfloat16 the last position rounds to 1 and its quantile to infinity.
    """
    i = torch.arange(1, n + 1, dtype=torch.float64)
    u = i / (n + 1) if positions == "weibull" else (i - 0.5) / n
    return torch.special.ndtri(u.clamp(clamp, 1 - clamp)).to(device=device, dtype=dtype)


class ToQuantiles:
    """sum_k mean_{v,i} (p_(i) - q_i)^2 and its gradient, 2 (p_i - q_rank(i)) / (v n), which but for 2 / (v n) takes the
    place of p.

    Rather than sort the projections, send each quantile to the sample of its rank: one scatter serves both.
    """

    def __init__(self, q: Float[Tensor, "n"], p: Float[Tensor, "k v n"]) -> None:
        k, v, n = p.shape
        self.p, self.gaps, self.q = p, p.view(-1), q.expand_as(p)
        self.order = _Order(p)
        self.target = memory("target", k, v, n, dtype=p.dtype, device=p.device)
        self.factor = 2 / (v * n)

    def __call__(self) -> Tensor:
        self.p.sub_(self.target.scatter_(-1, self.order(), self.q))
        return torch.dot(self.gaps, self.gaps) * (self.factor / 2)


class _Order:
    """argsort of p along the last axis, in any order among equals.

    On the CPU a vectorised sort of values is far faster than one of indices, and a float32 fits into a float64 with 29
    bits to spare: enough to carry its index along.  (An infinity turns into NaN that way, and NaN loses its index: the
    order is then wrong, but no loss of such values is finite.)
    """

    def __init__(self, p: Float[Tensor, "k v n"]) -> None:
        k, v, n = p.shape
        self.p, self.indices = p, torch.arange(n)
        self.tagging = p.device.type == "cpu" and p.dtype == torch.float32 and n <= 1 << 29
        if self.tagging:
            self.keys = memory("keys", k, v, n, dtype=torch.float64, device=p.device)
            self.tagged, self.sortable = self.keys.view(torch.int64), self.keys.numpy()

    def __call__(self) -> Int[Tensor, "k v n"]:
        if self.tagging:
            self.keys.copy_(self.p)
            self.tagged.bitwise_or_(self.indices)
            self.sortable.sort(axis=-1)
            return self.tagged.bitwise_and_((1 << 29) - 1)
        if self.p.device.type == "cpu":
            return torch.from_numpy(np.argsort(self.p.numpy(), axis=-1))
        return self.p.argsort(dim=-1)
