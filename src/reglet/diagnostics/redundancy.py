"""What a loss of the Barlow Twins kind spends on redundancy, against alignment.

The SMI paper (arXiv:2606.08332) follows this ratio over training in its figure 6, without a formula.  Ours is the
quotient of the loss's two terms,

    ratio = weight sum_{i != j} C_ij^2  /  sum_i (1 - C_ii)^2

with C the cross-correlation of features (Barlow Twins) or the information between samples (SMI).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.precision import in_float64


def redundancy_to_alignment(c: Float[Tensor, "m m"], *, weight: float = 1.0) -> float:
    """The ratio above; infinite where alignment is perfect.  `weight` is the loss's lambda.

    >>> redundancy_to_alignment(torch.tensor([[0.5, 0.5], [0.0, 0.5]]))
    0.5
    """
    c = in_float64(c)
    diagonal = c.diagonal()
    off = (c.square().sum() - diagonal.square().sum()).clamp_min(0)
    on = (1 - diagonal).square().sum()
    return float(weight * off / on)


def cross_correlation(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """Correlation over samples of each feature in one view with each in the other; 0 for a feature that is constant."""
    if len(z0) < 2:
        raise ValueError(f"a correlation needs at least two samples, got {len(z0)}")
    a, b = (_unit_columns(in_float64(z)) for z in (z0, z1))
    return a.T @ b


def _unit_columns(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    z = z - z.mean(0)
    norm = torch.linalg.vector_norm(z, dim=0)
    return torch.where(norm > 0, z / norm.clamp_min(torch.finfo(z.dtype).tiny), torch.zeros_like(z))
