"""Frechet distance between sets of features.  Dowson and Landau 1982; Heusel et al. 2017 for images.

    d^2 = |m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^1/2)

between the Gaussians with the means and covariances of the features.  It is the FID only where the features are those
of Heusel et al.'s Inception network; with any other encoder its scale is that encoder's, so a figure names it.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def frechet_distance(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> float:
    """d^2 in float64.

    tr (C_a C_b)^1/2 is the sum of the roots of the eigenvalues of C_a^1/2 C_b C_a^1/2, which is symmetric: so two
    symmetric eigendecompositions do, and nothing becomes complex.

    >>> x = torch.tensor([[0.0], [2.0]])
    >>> round(frechet_distance(x, x + 3), 9), round(frechet_distance(x, 4 * x), 9)  # C = 2
    (9.0, 27.0)
    """
    if min(len(a), len(b)) < 2:
        raise ValueError(f"a covariance needs two samples at least, got {len(a)} and {len(b)}")
    (m_a, c_a), (m_b, c_b) = (_moments(x.double()) for x in (a, b))
    root = symmetric_root(c_a)
    shared = torch.linalg.eigvalsh(root @ c_b @ root).clamp_min(0).sqrt().sum()
    return float(((m_a - m_b) ** 2).sum() + c_a.trace() + c_b.trace() - 2 * shared)


def symmetric_root(c: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Of a positive semidefinite matrix; eigenvalues below zero are rounding."""
    values, vectors = torch.linalg.eigh(c)
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.T


def _moments(x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    return x.mean(0), torch.atleast_2d(torch.cov(x.T))
