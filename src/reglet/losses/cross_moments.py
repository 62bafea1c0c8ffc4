"""Diagonal and off-diagonal energy of A^T B: all that VICReg and Barlow Twins want of it, by the cheaper exact way.

    c_j = (A^T B)_jj,      e = sum_{i != j} (A^T B)_ij^2

    direct   C = A^T B,  |C|^2 without its diagonal             O(n d^2), and a d x d matrix
    Gram     |A^T B|_F^2 = <A A^T, B B^T>,  minus |c|^2         O(n^2 d), and n x n matrices

The Gram form subtracts two large numbers.  With rank at most n, at least a share 1 - n/d of the energy lies off the
diagonal when the columns are of one size, so for 2n <= d float32 keeps its digits.  When some column dominates, the
share can still vanish; then the same sums are taken in float64.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.losses.fused import once
from reglet.types import Scalar

SAFE_SHARE = 1e-2  # of the energy off the diagonal: float32 then leaves five digits


@torch.compiler.disable
def cross_moments(
    a: Float[Tensor, "v n d"], b: Float[Tensor, "v n d"] | None = None
) -> tuple[Float[Tensor, "v d"], Scalar]:
    """c for every view (or pair of views), and e summed over them.  B = A where none is given.  Differentiable once."""
    return _CrossMoments.apply(a, b)


class _CrossMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.own, ctx.gram, dtype = b is None, 2 * a.shape[1] <= a.shape[2], a.dtype
        b = a if b is None else b
        if ctx.gram:
            G, H, c, energy, share = _gram(a, b)
            if dtype != torch.float64 and bool((share < SAFE_SHARE).any()):
                exact = a.double()
                G, H, c, energy, _ = _gram(exact, exact if ctx.own else b.double())
            ctx.save_for_backward(a, b, G, H, c)
        else:
            C = _product(a.mT, b)
            c = C.diagonal(dim1=1, dim2=2).clone()
            C.diagonal(dim1=1, dim2=2).zero_()
            energy = torch.dot(C.view(-1), C.view(-1))
            ctx.save_for_backward(a, b, C)
        return c.to(dtype), energy.to(dtype)

    @staticmethod
    def backward(ctx: Any, dc: Tensor, de: Tensor) -> tuple[Tensor, Tensor | None]:
        with torch.no_grad():
            da, db = _gradients(ctx, dc, de)
        a, b = ctx.saved_tensors[:2]
        return once(da, a, b), None if ctx.own else once(db, a, b)


def _gradients(ctx: Any, dc: Tensor, de: Tensor) -> tuple[Tensor, Tensor]:
    if ctx.gram:  # dA = 2 de (B B^T A - B diag c) + B diag dc
        a, b, G, H, c = ctx.saved_tensors
        a, b = a.to(G.dtype), b.to(G.dtype)
        column = (dc - 2 * de * c).unsqueeze(1)
        da = _product(2 * de * H, a).addcmul_(b, column)
        db = da if ctx.own else _product(2 * de * G, b).addcmul_(a, column)
    else:  # dA = B (2 de C + diag dc)^T, where C has no diagonal
        a, b, C = ctx.saved_tensors
        E = 2 * de * C
        E.diagonal(dim1=1, dim2=2).copy_(dc)
        db = _product(a, E)
        da = db if ctx.own else _product(b, E.mT)
    return (2 * da if ctx.own else da).to(dc.dtype), db.to(dc.dtype)


def _gram(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A A^T, B B^T, c, e, and the share of e in |A^T B|^2 for every view."""
    G = _product(a, a.mT)
    H = G if b is a else _product(b, b.mT)
    c = (a * b).sum(dim=1)
    whole = (G * H).sum(dim=(1, 2), dtype=torch.float64)
    off = (whole - c.square().sum(dim=1, dtype=torch.float64)).clamp_min(0)
    return G, H, c, off.sum(), torch.where(whole > 0, off / whole, 1)


def _product(x: Tensor, y: Tensor) -> Tensor:
    """x @ y view by view: on the CPU a batched product of one or two large matrices is up to four times slower."""
    if len(x) == 1:
        return (x[0] @ y[0]).unsqueeze(0)
    return torch.stack([one @ other for one, other in zip(x, y, strict=True)])
