"""sum_{i != j} (A^T B)_ij^2: VICReg's covariance and Barlow Twins' redundancy, by the cheaper of two exact ways.

    direct   C = A^T B,  |C|^2 - |diag C|^2                          O(n d^2), and a d x d matrix
    Gram     |A^T B|_F^2 = <A A^T, B B^T>,  minus |diag C|^2         O(n^2 d), and n x n matrices

The Gram form subtracts two large numbers.  With rank at most n, at least a share 1 - n/d of the energy lies off the
diagonal when the columns are of one size, so for 2n <= d float32 keeps its digits.  When some column dominates, the
share can still vanish; then the same sums are taken in float64.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.losses.fused import fused
from reglet.types import Scalar

SAFE_SHARE = 1e-2  # of the energy off the diagonal: float32 then leaves five digits


def off_diagonal_energy(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"] | None = None) -> Scalar:
    """sum_{i != j} (A^T B)_ij^2, with B = A where none is given."""
    gram = 2 * a.shape[0] <= a.shape[1]
    if b is None:
        return fused(_gram_own if gram else _direct_own, a)
    return fused(_gram if gram else _direct, a, b)


def _direct(a: Tensor, b: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    C = (a.T @ b).fill_diagonal_(0)
    return torch.dot(C.view(-1), C.view(-1)), (2 * (b @ C.T), 2 * (a @ C))


def _direct_own(a: Tensor) -> tuple[Tensor, tuple[Tensor]]:
    C = (a.T @ a).fill_diagonal_(0)
    return torch.dot(C.view(-1), C.view(-1)), (4 * (a @ C),)


def _gram(a: Tensor, b: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    G, H, c = a @ a.T, b @ b.T, (a * b).sum(dim=0)
    energy, safe = _off(G, H, c)
    if not safe:
        value, grads = _gram(a.double(), b.double())
        return value.to(a.dtype), tuple(g.to(a.dtype) for g in grads)  # type: ignore[return-value]
    return energy, (2 * (H @ a - b * c), 2 * (G @ b - a * c))


def _gram_own(a: Tensor) -> tuple[Tensor, tuple[Tensor]]:
    G, c = a @ a.T, a.square().sum(dim=0)
    energy, safe = _off(G, G, c)
    if not safe:
        value, (grad,) = _gram_own(a.double())
        return value.to(a.dtype), (grad.to(a.dtype),)
    return energy, (4 * (G @ a - a * c),)


def _off(G: Tensor, H: Tensor, c: Tensor) -> tuple[Tensor, bool]:
    whole = (G * H).sum(dtype=torch.float64)
    energy = (whole - c.square().sum(dtype=torch.float64)).clamp_min(0)
    safe = G.dtype == torch.float64 or bool(energy >= SAFE_SHARE * whole)
    return energy.to(G.dtype), safe
