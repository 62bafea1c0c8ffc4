"""Two arms over the same seeds: is there a difference, and how many seeds would tell?

    d_s = candidate_s - base_s,      m = mean d,      e = std(d) / sqrt(n)

    interval   bootstrap-t: [m - q_0.975 e, m - q_0.025 e], with q the quantiles of (m* - m) / e* over resamples of d
    sign test  exact: how likely is a split of signs at least this uneven, if either sign is as likely?  Ties drop out

The plain percentile bootstrap is too narrow for a handful of seeds: of 1,500 sets of five normal differences without
any effect it excluded zero in 15 %, bootstrap-t in 4 %; at three seeds even that excluded it in 18 %.  So below four
seeds nothing is decided.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Verdict = Literal["helps", "hurts", "cannot be told"]
LEAST = 4
RESAMPLES = 10_000
MOST_SEEDS = 1_000


@dataclass(frozen=True)
class Paired:
    """difference: the mean, of candidate minus base.  seeds_needed: None where more than 1,000 would be."""

    base: float
    candidate: float
    difference: float
    low: float
    high: float
    sign_p: float
    seeds: int
    seeds_needed: int | None
    verdict: Verdict


def paired(base: Sequence[float], candidate: Sequence[float], *, larger_is_better: bool = True) -> Paired:
    """What the differences tell at 95 %.

    >>> result = paired([0.50, 0.51, 0.49, 0.50, 0.52], [0.53, 0.55, 0.53, 0.52, 0.55])
    >>> result.verdict, round(result.difference, 3), result.sign_p
    ('helps', 0.032, 0.0625)
    """
    a, b = np.asarray(base, dtype=np.float64), np.asarray(candidate, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or not len(a):
        raise ValueError(f"a pair of scores for each seed is needed, got shapes {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("a score is not finite")
    d = b - a
    low, high = bootstrap_t(d)
    verdict: Verdict = "cannot be told"
    if len(d) >= LEAST and (low > 0 or high < 0):
        verdict = "helps" if (low > 0) == larger_is_better else "hurts"
    means = float(a.mean()), float(b.mean()), float(d.mean())
    return Paired(*means, low, high, sign_test(d), len(d), seeds_needed(d), verdict)


def bootstrap_t(d: npt.NDArray[np.float64], *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """The interval of the mean.  All n^n resamples for n <= 5, else 10,000 of them."""
    n, m = len(d), float(d.mean())
    spread = float(d.std(ddof=1)) if n > 1 else math.inf
    if n < 2:
        return -math.inf, math.inf
    if spread <= 1e-12 * max(1.0, abs(m)):  # every seed says the same
        return m, m
    every = itertools.product(range(n), repeat=n)
    index = np.array(list(every)) if n <= 5 else np.random.default_rng(seed).integers(n, size=(RESAMPLES, n))
    resampled = d[index]
    errors = resampled.std(axis=1, ddof=1) / math.sqrt(n)
    varied = errors > 1e-9 * spread
    t = (resampled[varied].mean(axis=1) - m) / errors[varied]
    below, above = np.quantile(t, [(1 - level) / 2, (1 + level) / 2])
    error = spread / math.sqrt(n)
    return m - float(above) * error, m - float(below) * error


def sign_test(d: npt.NDArray[np.float64]) -> float:
    """The two-sided p-value."""
    up, down = int((d > 0).sum()), int((d < 0).sum())
    n = up + down
    tail = sum(math.comb(n, k) for k in range(max(up, down), n + 1)) / 2**n
    return min(1.0, 2 * tail)


def seeds_needed(d: npt.NDArray[np.float64]) -> int | None:
    """Seeds at which a true difference as large as the one seen is told from zero in four of five attempts.

    (1.96 + 0.84)^2 (std / mean)^2, and two more for the estimated deviation.
    """
    mean = abs(float(d.mean()))
    std = float(d.std(ddof=1)) if len(d) > 1 else math.inf
    if not math.isfinite(std) or mean == 0:
        return None
    n = max(LEAST, math.ceil((2.802 * std / mean) ** 2 + 2))
    return n if n <= MOST_SEEDS else None
