"""Numbers about training: gradients, redundancy, whether a lower loss is a better one, and the ranks' slices.

A spike is a step whose gradient norm exceeds `factor` times the average of the steps before it, as in the SIM paper's
figure 5 (gradient norm and its moving average).

Redundancy is compared with alignment, for a loss like Barlow Twins.  The SMI paper (arXiv:2606.08332) shows this ratio
over training in its figure 6, without a formula.  Ours is the quotient of the loss's two terms,

    ratio = weight sum_{i != j} C_ij^2  /  sum_i (1 - C_ii)^2

with C the cross-correlation of features (Barlow Twins) or the information between samples (SMI).

A lower loss should mean a better representation: VISReg reports a Pearson correlation of -0.996 with accuracy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from reglet import check
from reglet.dist import concat_over_ranks
from reglet.precision import in_float64
from reglet.shares import gradient_norm
from reglet.types import Terms


def gradient_norms(terms: Terms, tensors: Tensor | Sequence[Tensor]) -> dict[str, float]:
    """The norm of each term's gradient with respect to all `tensors` (embeddings or parameters) together.

    >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> gradient_norms({"a": x.square().sum() / 2, "b": 2 * x[0]}, x)
    {'a': 5.0, 'b': 2.0}
    """
    inputs = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return {name: float(gradient_norm(term, inputs)) for name, term in terms.items()}


class Spikes(NamedTuple):
    """The steps that were spikes, their share of all steps, and the variation of the norms.

    >>> gradient_spikes([1.0, 1.0, 10.0, 1.0]).share
    0.25
    """

    steps: list[int]  # where they are
    share: float  # of all steps
    variation: float  # coefficient of variation about the moving average


def gradient_spikes(norms: Sequence[float], *, factor: float = 3.0, decay: float = 0.98) -> Spikes:
    """Steps whose norm is above `factor` times the moving average of the steps before.  A spike counts in the average
    as `factor` times the average, so that it does not hide the next.  A norm that is not finite is a spike.

    variation: the deviation of norm / average over all steps except the first.  It does not depend on the loss's scale.

    >>> gradient_spikes([1.0, 1.0, 10.0, 1.0]).steps
    [2]
    """
    check.positive(factor=factor)
    check.below_one(decay=decay)
    _numbers("norms", norms)
    if len(norms) < 2 or not np.isfinite(norms[0]) or min(x for x in norms if x == x) < 0:
        raise ValueError(f"expected two gradient norms or more, none negative and the first finite; got {norms[:5]}")
    average = weight = 0.0
    steps, relative = [], []
    for i, norm in enumerate(norms):
        now = average / weight if weight else norm  # the weights of the past sum to 1 - decay^i
        # `not <=` makes NaN a spike.  A gradient that was zero until now has no scale to compare with.
        spike = not norm <= factor * now if now > 0 or norm != norm else False
        if spike:
            steps.append(i)
        if i and now > 0:
            relative.append(min(norm / now, 1e6) if np.isfinite(norm) else 1e6)
        kept = factor * now if spike else norm
        average, weight = decay * average + (1 - decay) * kept, decay * weight + (1 - decay)
    return Spikes(steps, len(steps) / len(norms), float(np.std(relative)) if relative else 0.0)


def redundancy_to_alignment(c: Float[Tensor, "m m"], *, weight: float = 1.0) -> float:
    """The ratio above: infinite if alignment is perfect, but 0 if there is no redundancy.

    weight: the loss's lambda.

    >>> redundancy_to_alignment(torch.tensor([[0.5, 0.5], [0.0, 0.5]]))
    0.5
    """
    check.tensors(["m m"], c=c)
    check.all_finite(correlations=c)
    check.not_negative(weight=weight)
    c = in_float64(c)
    diagonal = c.diagonal()
    off = (c.square().sum() - diagonal.square().sum()).clamp_min(0)
    on = (1 - diagonal).square().sum()
    return float(weight * off / on) if off > 0 else 0.0


def cross_correlation(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """The correlation, over samples, of each feature in one view with each in the other; 0 for a constant feature.

    >>> z = torch.randn(100, 3)
    >>> cross_correlation(z, -z).diagonal().round().tolist()
    [-1.0, -1.0, -1.0]
    """
    check.tensors(["n d", "n d"], z0=z0, z1=z1)
    check.all_finite(embeddings_of_the_first_view=z0, embeddings_of_the_second=z1)
    if len(z0) < 2:
        raise ValueError(f"a correlation needs at least two samples, got {len(z0)}")
    a, b = (_unit_columns(in_float64(z)) for z in (z0, z1))
    return a.T @ b


def _unit_columns(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    z = z - z.mean(0)
    norm = torch.linalg.vector_norm(z, dim=0)
    return torch.where(norm > 0, z / norm.clamp_min(torch.finfo(z.dtype).tiny), torch.zeros_like(z))


class Correlation(NamedTuple):
    """The correlations of two sequences of numbers: Pearson's, and Spearman's of their ranks.

    >>> round(loss_accuracy_correlation([1.0, 2.0, 3.0], [1.0, 4.0, 9.0]).spearman, 4)
    1.0
    """

    pearson: float
    spearman: float


def loss_accuracy_correlation(loss: Sequence[float], accuracy: Sequence[float]) -> Correlation:
    """The correlation over epochs or runs.  Pearson's says how linear the relation is, Spearman's how monotonic.

    NaN if a sequence does not vary.

    >>> r = loss_accuracy_correlation([4.0, 2.0, 1.0, 0.5], [0.1, 0.2, 0.3, 0.4])
    >>> round(r.pearson, 3), round(r.spearman, 3)
    (-0.959, -1.0)
    """
    for name, values in (("loss", loss), ("accuracy", accuracy)):
        _numbers(name, values)
        if not np.isfinite(np.asarray(values, dtype=np.float64)).all():
            raise ValueError(f"{name} must hold finite numbers, got {list(values)[:5]}")
    x, y = np.asarray(loss, dtype=np.float64), np.asarray(accuracy, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 3:
        raise ValueError(f"expected as many losses as accuracies, three or more; got {x.shape} and {y.shape}")
    return Correlation(_pearson(x, y), _pearson(_ranks(x), _ranks(y)))


def _numbers(name: str, values: Sequence[float]) -> None:
    """Raise unless these are numbers; NaN and infinity are allowed."""
    if np.ndim(values) != 1 or not np.issubdtype(np.asarray(values).dtype, np.number):
        raise TypeError(f"{name} must be a sequence of numbers, got {values!r:.60}")


def _pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / scale if scale > 0 else float("nan")


def _ranks(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1.  Equal values share their mean rank."""
    _, where, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: NDArray[np.float64] = (last - (count - 1) / 2)[where]
    return ranks


def same_slices(directions: Float[Tensor, "k d"]) -> bool:
    """Whether two ranks hold equal `directions`.  Every rank must call it, and all get the same answer.

    W ranks with different directions see W times as many.  If directions come from the global generator, the same
    `manual_seed` on all ranks silently makes them equal.  On one rank: False.

    >>> same_slices(torch.eye(4))
    False
    """
    check.tensor("directions", directions, None, None)
    every = concat_over_ranks(directions[None])
    return any(bool((every[i] == every[j]).all()) for i in range(len(every)) for j in range(i))
