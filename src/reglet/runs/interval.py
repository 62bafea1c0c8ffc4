"""The one interval: Student's t, over seeds.

    d_s = candidate_s - base_s,     m = mean d,     e = std(d) / sqrt(n),     [m - q e, m + q e],  q = t_{n-1, 0.975}

The table shows how often in 100 an interval excludes the true mean; 5 is right.  It is from 100,000 samples for t, and
2,000 for bootstrap-t, which this module used before (commit 19788c6; all resamples up to n = 5, then 2,000).  The
differences are normal; or of two arms with skewed (exponential) scores; or of accuracies on 300 images that differ by a
few; or the same with many ties; or skewed themselves (exponential).

                              n =    3     4     5     6     8    10    15    20
    normal          t              4.9   5.0   4.9   5.0   4.8   5.0   5.0   4.9
                    bootstrap-t   19.0   5.0   4.4   5.2   6.6   5.9   6.0   4.8
    two skewed arms t              3.3   3.2   3.4   3.7   4.0   4.2   4.4   4.7
                    bootstrap-t   19.8   4.7   4.9   5.8   7.2   8.3   7.2   7.4
    accuracies      t              4.5   4.5   4.9   5.2   5.2   5.1   5.2   5.0
                    bootstrap-t   36.0  10.8   7.1   5.9   5.9   4.9   5.1   4.9
    many ties       t              3.8   1.9   4.1   5.5   6.5   4.5   5.1   5.2
                    bootstrap-t   31.5  22.4  10.0   8.5   5.1   4.7   4.2   4.9
    skewed          t             11.6  12.0  11.8  11.3  10.6   9.9   8.9   7.9
                    bootstrap-t   20.3   6.8   5.9   7.2   7.6   6.0   6.8   4.9

t is right or careful for symmetric differences.  Without an effect, differences are symmetric, because two equal arms
can be swapped.  Bootstrap-t is better only for skewed differences.  It fails on accuracies of few seeds, and on normal
differences it is 1.7 and 1.3 times as wide at four and five seeds.  Below four seeds nothing is decided: three
accuracies agree by chance too often.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal

PairedVerdict = Literal["helps", "hurts", "cannot be told", "none"]
LEVEL, POWER = 0.05, 0.8
LEAST = 4  # seeds that decide something
MOST_SEEDS = 1_000


@dataclass(frozen=True)
class Interval:
    """The 95 % interval of a mean.  It is infinite for one value.

    >>> Interval(mean=2.0, low=1.0, high=3.0, n=5).half
    1.0
    """

    mean: float
    low: float
    high: float
    n: int

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.half / _quantile(LEVEL, self.n) if self.n > 1 else math.inf

    def p(self, effect: float = 0.0) -> float:
        """Two-sided p-value of the hypothesis that the true mean is `effect`."""
        from scipy.special import stdtr

        if self.n < 2:
            return 1.0
        away = abs(self.mean - effect)
        if self.error == 0:
            return 1.0 if away == 0 else 0.0
        return float(2 * stdtr(self.n - 1, -away / self.error))


def interval(values: Sequence[float]) -> Interval:
    """The interval of the mean, from one value for each seed.

    >>> seen = interval([1.0, 2.0, 3.0])
    >>> seen.mean, round(seen.low, 3), round(seen.high, 3)
    (2.0, -0.484, 4.484)
    """
    n = len(values)
    if not n:
        raise ValueError("an interval of no values")
    if not all(math.isfinite(v) for v in values):
        raise ValueError(f"a score is not finite: {list(values)}")
    m = mean(values)
    spread = stdev(values) if n > 1 else math.inf
    if spread <= 1e-12 * max(1.0, abs(m)):  # all seeds agree up to rounding
        return Interval(m, m, m, n)
    half = _quantile(LEVEL, n) * spread / math.sqrt(n) if n > 1 else math.inf
    return Interval(m, m - half, m + half, n)


def difference(candidate: Mapping[int, float], base: Mapping[int, float]) -> Interval:
    """The interval of candidate minus base, over the seeds that both have.

    >>> difference({0: 0.75, 1: 0.5}, {0: 0.5, 1: 0.25, 2: 0.9}).mean  # seed 2 has no partner
    0.25
    """
    seeds = sorted(candidate.keys() & base.keys())
    if not seeds:
        raise ValueError(f"no seed in common: {sorted(candidate)} and {sorted(base)}")
    return interval([candidate[seed] - base[seed] for seed in seeds])


@dataclass(frozen=True)
class Paired:
    """difference: the mean of candidate minus base.  p: the p-value of no difference.

    seeds_needed: None if more than 1,000.  verdict: "none" for a number that is no score.

    >>> paired([0.50, 0.51, 0.49], [0.53, 0.55, 0.51]).verdict
    'cannot be told'
    """

    base: float
    candidate: float
    difference: float
    low: float
    high: float
    p: float
    seeds: int
    seeds_needed: int | None
    verdict: PairedVerdict


def paired(base: Sequence[float], candidate: Sequence[float], *, larger_is_better: bool | None = True) -> Paired:
    """Two arms over the same seeds: is there a difference, and how many seeds would show it?

    larger_is_better: None for a number that is no score, such as a rank.

    >>> result = paired([0.50, 0.51, 0.49, 0.50, 0.52], [0.53, 0.55, 0.53, 0.52, 0.55])
    >>> result.verdict, round(result.difference, 3), round(result.p, 4)
    ('helps', 0.032, 0.001)
    """
    if len(base) != len(candidate) or not base:
        raise ValueError(f"a pair of scores for each seed is needed, got {len(base)} and {len(candidate)}")
    d = interval([b - a for a, b in zip(base, candidate, strict=True)])
    told: PairedVerdict = "none" if larger_is_better is None else "cannot be told"
    if told != "none" and d.n >= LEAST and (d.low > 0 or d.high < 0):
        told = "helps" if (d.low > 0) == larger_is_better else "hurts"
    means = mean(base), mean(candidate), d.mean
    return Paired(*means, d.low, d.high, d.p(), d.n, seeds_needed(d, d.mean), told)


def seeds_needed(seen: Interval, effect: float, *, level: float = LEVEL) -> int | None:
    """The number of seeds that show a true difference of `effect` in four of five attempts, given the spread seen.

    >>> seeds_needed(interval([1.0, -1.0, 2.0]), effect=1.0)
    21
    """
    spread = seen.error * math.sqrt(seen.n)
    if not math.isfinite(spread) or effect == 0:
        return None
    if spread == 0:
        return LEAST
    size = abs(effect) / spread
    low, high = LEAST - 1, LEAST
    while _power(size, high, level) < POWER:
        low, high = high, 2 * high
        if low > MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _power(size, middle, level) >= POWER else (middle, high)
    return high if high <= MOST_SEEDS else None


def _power(size: float, n: int, level: float) -> float:
    """The chance that n seeds show an effect of `size` standard deviations."""
    from scipy.special import nctdtr

    return 1 - float(nctdtr(n - 1, size * math.sqrt(n), _quantile(level, n)))


def _quantile(level: float, n: int) -> float:
    """The two-sided quantile of t with n - 1 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 1 - level / 2))
