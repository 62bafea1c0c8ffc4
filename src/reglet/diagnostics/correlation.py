"""Does a lower loss mean a better representation?  VISReg reports a Pearson correlation of -0.996 with accuracy."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Correlation(NamedTuple):
    pearson: float
    spearman: float


def loss_accuracy_correlation(loss: Sequence[float], accuracy: Sequence[float]) -> Correlation:
    """Over epochs or runs.  Pearson's sees how straight the relation is, Spearman's only whether it is monotonic.

    A sequence that does not vary correlates with nothing: NaN.

    >>> r = loss_accuracy_correlation([4.0, 2.0, 1.0, 0.5], [0.1, 0.2, 0.3, 0.4])
    >>> round(r.pearson, 3), round(r.spearman, 3)
    (-0.959, -1.0)
    """
    x, y = np.asarray(loss, dtype=np.float64), np.asarray(accuracy, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 3:
        raise ValueError(f"expected as many losses as accuracies, three or more; got {x.shape} and {y.shape}")
    return Correlation(_pearson(x, y), _pearson(_ranks(x), _ranks(y)))


def _pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / scale if scale > 0 else float("nan")


def _ranks(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places from 1; equal values share the mean of theirs."""
    _, where, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: NDArray[np.float64] = (last - (count - 1) / 2)[where]
    return ranks
