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
    """sum_k mean_{v,i} (p_(i) - q_i)^2 and its gradient, 2 (p_i - q_rank(i)) / (v n), which takes the place of p.

    Rather than sort the projections, send each quantile to the sample of its rank: one scatter serves both.  The
    object keeps the memory that it sorts in, for as many chunks as it is called with.
    """

    def __init__(self, q: Float[Tensor, "n"]) -> None:
        self.q = q
        self.order, self.target = _Order(len(q)), q.new_empty(0, 0, 0)

    def __call__(self, p: Float[Tensor, "k v n"]) -> tuple[Tensor, Float[Tensor, "k v n"], float]:
        scale = 1 / (p.shape[1] * p.shape[2])
        if len(self.target) < len(p):
            self.target = memory("target", *p.shape, dtype=p.dtype, device=p.device)
        target = self.target[: len(p)].scatter_(-1, self.order(p), self.q.expand_as(p))
        gap = p.sub_(target)
        flat = gap.view(-1)
        return torch.dot(flat, flat) * scale, gap, 2 * scale


class _Order:
    """argsort along the last axis, in any order among equals.

    On the CPU a vectorised sort of values is far faster than one of indices, and a float32 fits into a float64 with 29
    bits to spare: enough to carry its index along.  (An infinity turns into NaN that way, and NaN loses its index: the
    order is then wrong, but no loss of such values is finite.)
    """

    def __init__(self, n: int) -> None:
        self.keys, self.indices = torch.empty(0, 0, n, dtype=torch.float64), torch.arange(n)

    def __call__(self, p: Float[Tensor, "k v n"]) -> Int[Tensor, "k v n"]:
        if p.device.type != "cpu":
            return p.argsort(dim=-1)
        if p.dtype != torch.float32 or p.shape[-1] > 1 << 29:
            return torch.from_numpy(np.argsort(p.numpy(), axis=-1))
        if len(self.keys) < len(p):
            self.keys = memory("keys", *p.shape, dtype=torch.float64, device=p.device)
        keys = self.keys[: len(p)].copy_(p)
        tagged = keys.view(torch.int64).bitwise_or_(self.indices)
        keys.numpy().sort(axis=-1)
        return tagged.bitwise_and_((1 << 29) - 1)
