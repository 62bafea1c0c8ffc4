"""Alignment and uniformity on the unit sphere.  Wang & Isola, ICML 2020, arXiv:2005.10242.

    alignment  = E |f(x) - f(x')|^alpha       over positive pairs: views of one image, or samples of one class
    uniformity = log E exp(-t |f(x) - f(y)|^2)     over pairs of samples

Features are scaled to unit length first.  Lower is better for both.  LatentDR (eqs. 10 and 11) takes pairs of one
class, alpha = 2 and t = 2.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet import check
from reglet.diagnostics.spectrum import check_features
from reglet.precision import at_least_float32, in_float64, unit_length


def alignment(z: Float[Tensor, "v n d"], *, alpha: float = 2.0) -> float:
    """The alignment over all pairs of views of each image.

    >>> round(alignment(torch.tensor([[[1.0, 0.0]], [[0.0, 3.0]]])), 6)
    2.0
    """
    check.tensor("z", z, None, None, None)
    check.positive(alpha=alpha)
    check.all_finite(embeddings=z)
    v = len(z)
    if v < 2:
        raise ValueError(f"alignment needs at least two views, got (v, n, d) = {tuple(z.shape)}")
    unit = unit_length(in_float64(z))
    distances = [(unit[i] - unit[j]).norm(dim=-1).pow(alpha).mean() for i in range(v) for j in range(i + 1, v)]
    value = torch.stack(distances).mean()
    check.no_overflow("alignment", {f"a distance to the power of {alpha:g}": value}, z)
    return float(value)


def class_alignment(z: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> float:
    """The alignment over all pairs of different samples of one class, with alpha = 2.

    sum_{i<j} |a_i - a_j|^2 = m sum_i |a_i|^2 - |sum_i a_i|^2 over the m members of a class, so no pair is formed.

    >>> class_alignment(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))
    0.0
    """
    check_features(z)
    check.class_numbers(len(z), labels=labels)
    unit = unit_length(in_float64(z))
    _, member = labels.to(unit.device).unique(return_inverse=True)
    count = member.bincount().double()
    sums = unit.new_zeros(len(count), z.shape[1]).index_add_(0, member, unit)
    squares = unit.new_zeros(len(count)).index_add_(0, member, unit.square().sum(1))
    pairs = (count * (count - 1) / 2).sum()
    if not pairs > 0:
        raise ValueError(f"no class has two samples: {len(z)} samples in {len(count)} classes")
    return float((count * squares - sums.square().sum(1)).sum().clamp_min(0) / pairs)


def uniformity(z: Float[Tensor, "n d"], *, t: float = 2.0, chunk: int = 1024) -> float:
    """The uniformity over all pairs of different samples, by `chunk` rows of the n x n similarities at a time.

    >>> round(uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])), 4)  # -2 times the squared distance, 4
    -8.0
    """
    check_features(z, least=2)
    check.positive(t=t)
    check.whole(1, chunk=chunk)
    unit = unit_length(at_least_float32(z))
    rows = []
    for start in range(0, len(unit), chunk):
        similarity = unit[start : start + chunk] @ unit.T
        similarity.diagonal(start).fill_(-math.inf)
        rows.append(in_float64((2 * t * (similarity - 1)).logsumexp(1)))  # |a - b|^2 = 2 - 2 a.b
    return float(torch.cat(rows).logsumexp(0)) - math.log(len(unit) * (len(unit) - 1))
