"""The squared 2-Wasserstein distance in one dimension, between n samples and the standard normal."""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

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


def to_quantiles(p: Float[Tensor, "k v n"], q: Float[Tensor, "n"]) -> tuple[Tensor, Float[Tensor, "k v n"]]:
    """sum_k mean_{v,i} (p_(i) - q_i)^2 and its gradient, 2 (p_i - q_rank(i)) / (v n).

    Rather than sort the projections, send each quantile to the sample of its rank: one scatter serves both.
    """
    scale = 1 / (p.shape[1] * p.shape[2])
    target = torch.empty_like(p).scatter_(-1, argsort(p), q.expand_as(p))
    gap = p.sub_(target)
    flat = gap.view(-1)
    return torch.dot(flat, flat) * scale, gap.mul_(2 * scale)


def argsort(p: Float[Tensor, "... n"]) -> Int[Tensor, "... n"]:
    """Along the last axis, in any order among equals.

    On the CPU a vectorised sort of values is far faster than one of indices, and a float32 fits into a float64 with 29
    bits to spare: enough to carry its index along.  Infinities would turn into NaN that way, so they go the slow way.
    """
    if p.device.type != "cpu":
        return p.argsort(dim=-1)
    n = p.shape[-1]
    rows = p.reshape(-1, n)
    if p.dtype != torch.float32 or n > 1 << 29 or not math.isfinite(rows.sum().item()):
        return torch.from_numpy(np.argsort(rows.numpy(), axis=-1)).view(p.shape)
    keys = rows.double()
    tagged = keys.view(torch.int64).bitwise_or_(torch.arange(n))
    _sort_rows(keys.numpy())
    return tagged.bitwise_and_((1 << 29) - 1).view(p.shape)


def _sort_rows(rows: npt.NDArray[np.float64]) -> None:
    """In place, on torch's number of threads: numpy's sort releases the interpreter lock."""
    threads = torch.get_num_threads()
    if threads == 1 or rows.size < 1 << 14:
        rows.sort(axis=-1)
    else:
        own, *others = np.array_split(rows, threads)
        waiting = [_pool(threads - 1).submit(part.sort, axis=-1) for part in others]
        own.sort(axis=-1)
        for part in waiting:
            part.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="reglet-sort")
