"""Two encoders on the same test images: the difference of their scores, with an interval paired by image.

Image i has a score a_i from one encoder and b_i from the other: 0 for wrong, 1 for right, or a number between, such as
the share of corruptions under which it is classified correctly.

    d_i = b_i - a_i,     difference = mean d

Interval: images are drawn with replacement, `draws` times, and the interval goes from 2.5 % to 97.5 % of the means
(Efron's percentile bootstrap).  p: the sign-flip test of the hypothesis that d_i and -d_i are equally likely.  For
scores of 0 and 1 it is McNemar's exact test (1947): m images are right for one encoder only, k of them for the worse
one, and

    p = min(1, 2 sum_{j <= k} C(m, j) / 2^m)

There is a difference if the interval excludes 0 and the corrected p is at most 5 %.  p is corrected for the number of
differences in a table by Holm's procedure (`reglet.runs.verdict.holm`).

The interval says what other test images would change.  It does not say what another seed of training would change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet.runs.interval import LEVEL
from reglet.runs.verdict import holm

Told = Literal["better", "worse", "cannot be told", "none"]
DRAWS, FLIPS, HALVES = 2_000, 9_999, 50
_AT_ONCE = 1 << 22  # random numbers


@dataclass(frozen=True)
class ByImage:
    """difference: candidate minus base, with its interval.  p: the p-value of no difference, not yet corrected.

    gained, lost: the numbers of images on which the candidate scores higher, and lower.
    judged: False for a number that is no score, such as a rank, where nothing is better or worse.

    >>> import torch
    >>> seen = by_image(torch.tensor([0.0, 0, 0, 1]), torch.tensor([1.0, 1, 0, 1]))
    >>> seen.difference, seen.gained, seen.lost, seen.p, seen.told()
    (0.5, 2, 0, 0.5, 'cannot be told')
    """

    base: float
    candidate: float
    difference: float
    low: float
    high: float
    p: float
    images: int
    gained: int = 0
    lost: int = 0
    judged: bool = True

    def told(self, p: float | None = None) -> Told:
        """p: the corrected p-value, if several differences are tested at once."""
        if not self.judged:
            return "none"
        if (self.p if p is None else p) > LEVEL or self.low <= 0 <= self.high:
            return "cannot be told"
        return "better" if self.difference > 0 else "worse"


def correct_images(scores: Tensor, labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """1 for each image that is classified correctly, else 0.  scores: (n, classes), or the guessed classes (n).

    >>> import torch
    >>> correct_images(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1])).tolist()
    [1.0, 0.0]
    """
    guess = scores.argmax(1) if scores.ndim == 2 else scores
    if guess.shape != labels.shape:
        raise ValueError(f"a guess for each label is needed, got {tuple(guess.shape)} and {tuple(labels.shape)}")
    return (guess == labels).double()


def by_image(
    base: Float[Tensor, " n"], candidate: Float[Tensor, " m"], *, seed: int = 0, draws: int = DRAWS
) -> ByImage:
    """The difference of two scores of each image.

    >>> import torch
    >>> base = (torch.arange(200) % 2).double()
    >>> better = base.clone()
    >>> better[:40] = 1
    >>> seen = by_image(base, better)
    >>> seen.difference, seen.told()
    (0.1, 'better')
    """
    a, b = (x.detach().double().cpu().numpy() for x in (base, candidate))
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise ValueError(f"two scores for each image are needed, got shapes {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("a score of an image is not finite")
    d = b - a
    binary = bool(np.isin(a, (0.0, 1.0)).all() and np.isin(b, (0.0, 1.0)).all())
    gained, lost = int((d > 0).sum()), int((d < 0).sum())
    p = mcnemar(gained, lost) if binary else _sign_flips(d, seed)
    low, high = _bootstrap(d, seed, draws)
    return ByImage(float(a.mean()), float(b.mean()), float(d.mean()), low, high, p, len(d), gained, lost)


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p-value, from the numbers of images that only one encoder, and only the other, has right.

    >>> mcnemar(5, 0), mcnemar(1, 1), mcnemar(0, 0)
    (0.0625, 1.0, 1.0)
    """
    from scipy.special import bdtr

    if gained < 0 or lost < 0:
        raise ValueError(f"counts of images, got {gained} and {lost}")
    return min(1.0, 2 * float(bdtr(min(gained, lost), gained + lost, 0.5))) if gained + lost else 1.0


def statistic_by_image(
    statistic: Callable[[Float[Tensor, "n d"]], float],
    base: Float[Tensor, "n d"],
    candidate: Float[Tensor, "m e"],
    *,
    seed: int = 0,
    halves: int = HALVES,
) -> ByImage:
    """The difference of a number that is not a mean over images, such as the rank of the features.

    Drawing images twice would lower a rank.  So halves of the images are drawn without replacement, the same ones for
    both, and the spread of their differences is that of the difference on all images (delete-half jackknife, Wu 1986).

    >>> import torch
    >>> from reglet.diagnostics import rankme
    >>> x = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    >>> seen = statistic_by_image(rankme, x, x * torch.tensor([1.0] * 4 + [0.01] * 4), halves=20)
    >>> seen.high < 0, seen.told()
    (True, 'none')
    """
    n = len(base)
    if n != len(candidate) or n < 4:
        raise ValueError(f"the features of the same four or more images are needed, got {n} and {len(candidate)}")
    random = np.random.default_rng(seed)
    found = []
    for _ in range(halves):
        half = torch.from_numpy(random.permutation(n)[: n // 2]).to(base.device)
        found.append(statistic(candidate[half]) - statistic(base[half]))
    a, b = statistic(base), statistic(candidate)
    away = np.asarray(found) - np.mean(found)
    low, high = b - a + np.quantile(away, (LEVEL / 2, 1 - LEVEL / 2))
    return ByImage(a, b, b - a, float(low), float(high), 1.0, n, judged=False)


def tell(found: Sequence[ByImage]) -> list[tuple[float, Told]]:
    """The corrected p-value and the verdict of each difference of one table.

    >>> import torch
    >>> base, better = torch.zeros(20), torch.ones(20)
    >>> [word for _, word in tell([by_image(base, better), by_image(better, base), by_image(base, base)])]
    ['better', 'worse', 'cannot be told']
    """
    judged = [each for each in found if each.judged]
    corrected = iter(holm([each.p for each in judged]))
    return [(p, each.told(p)) for each in found for p in ([next(corrected)] if each.judged else [1.0])]


def _bootstrap(d: np.ndarray, seed: int, draws: int) -> tuple[float, float]:
    """The interval of the mean of d.  Counts of each different value are drawn, so equal values cost nothing."""
    values, counts = np.unique(d, return_counts=True)
    random, means, n = np.random.default_rng(seed), [], len(d)
    for part in _parts(draws, len(values)):
        means.append(random.multinomial(n, counts / n, size=part) @ values / n)
    low, high = np.quantile(np.concatenate(means), (LEVEL / 2, 1 - LEVEL / 2))
    return float(low), float(high)


def _sign_flips(d: np.ndarray, seed: int) -> float:
    """The share of random signs whose sum is as far from 0 as the sum of d; d itself counts as one draw."""
    d = d[d != 0]
    if not len(d):
        return 1.0
    random, seen, far = np.random.default_rng(seed), abs(d.sum()) * (1 - 1e-12), 1
    for part in _parts(FLIPS, len(d)):
        signs = 2.0 * random.integers(0, 2, size=(part, len(d)), dtype=np.int8) - 1
        far += int((abs(signs @ d) >= seen).sum())
    return far / (FLIPS + 1)


def _parts(total: int, width: int) -> list[int]:
    """Numbers of rows, so that few random numbers are held at once."""
    rows = max(1, _AT_ONCE // width)
    return [min(rows, total - start) for start in range(0, total, rows)]
