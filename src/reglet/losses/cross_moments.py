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


@torch.compiler.disable
def standardized_cross_moments(
    z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], *, eps: float
) -> tuple[Float[Tensor, " d"], Scalar]:
    """c and e of the batch-normalised z0 and z1 (biased variance, eps inside the root).  Differentiable once."""
    return _Standardized.apply(z0, z1, eps)


class _CrossMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.own = b is None
        b = a if b is None else b
        every = [_moments(one, one if ctx.own else other) for one, other in zip(a, b, strict=True)]
        ctx.save_for_backward(a, b, *(t for _, _, kept in every for t in kept))
        return torch.stack([c for c, _, _ in every]), torch.stack([e for _, e, _ in every]).sum()

    @staticmethod
    def backward(ctx: Any, dc: Tensor, de: Tensor) -> tuple[Tensor, Tensor | None]:
        a, b, *kept = ctx.saved_tensors
        with torch.no_grad(), torch.autocast(a.device.type, enabled=False):
            size = len(kept) // len(a)
            parts = [kept[i * size : (i + 1) * size] for i in range(len(a))]
            da = torch.stack([_gradient(b[i], a[i], parts[i], dc[i], de) for i in range(len(a))])
            if ctx.own:
                da *= 2
            else:
                db = torch.stack([_gradient(a[i], b[i], _swapped(parts[i]), dc[i], de) for i in range(len(a))])
        return once(da, a, b), None if ctx.own else once(db, a, b)


class _Standardized(torch.autograd.Function):
    """Batch norm goes into the gradient of the moments.

    With a = (z - mean) s, batch norm's gradient is s (da - mean(da) - a mean(da a)).  Here mean(da) = 0, because da is
    a combination of centred columns; and n mean(da a) is known from C where there is a C.
    """

    @staticmethod
    def forward(ctx: Any, z0: Tensor, z1: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        a, _, s = torch.native_batch_norm(z0, None, None, None, None, True, 0.0, eps)
        b, _, t = torch.native_batch_norm(z1, None, None, None, None, True, 0.0, eps)
        c, e, kept = _moments(a, b)
        ctx.save_for_backward(z0, z1, a, b, s, t, *kept)
        return c, e

    @staticmethod
    def backward(ctx: Any, dc: Tensor, de: Tensor) -> tuple[Tensor, Tensor, None]:
        z0, z1, a, b, s, t, *kept = ctx.saved_tensors
        with torch.no_grad(), torch.autocast(a.device.type, enabled=False):
            d0 = _gradient(b, a, kept, dc, de, scale=s)
            d1 = _gradient(a, b, _swapped(kept), dc, de, scale=t)
        return once(d0, z0, z1), once(d1, z0, z1), None


def _moments(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """c, e, and what the gradient needs: C without its diagonal, and c; or the two Gram matrices, and c."""
    n, d = a.shape
    if 2 * n > d:
        C = a.T @ b
        c = C.diagonal().clone()
        C.diagonal().zero_()
        flat = C.view(-1)
        return c, torch.dot(flat, flat), (C, c)
    G, H, c, energy, share = _gram(a, b)
    if a.dtype != torch.float64 and bool(share < SAFE_SHARE):
        exact = a.double()
        G, H, c, energy, _ = _gram(exact, exact if b is a else b.double())
    return c.to(a.dtype), energy.to(a.dtype), (G, H, c)


def _gram(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A A^T, B B^T, c, e, and the share of e in |A^T B|^2."""
    G = a @ a.T
    H = G if b is a else b @ b.T
    c = (a * b).sum(dim=0)
    whole = (G * H).sum(dtype=torch.float64)
    off = (whole - c.square().sum(dtype=torch.float64)).clamp_min(0)
    return G, H, c, off, torch.where(whole > 0, off / whole, 1)


def _gradient(
    b: Tensor, a: Tensor, kept: Any, dc: Tensor, de: Tensor, *, scale: Tensor | None = None
) -> Float[Tensor, "n d"]:
    """Of dc . c + de e with respect to a; with `scale`, to the z whose batch norm is a = (z - mean) scale."""
    n = len(a)
    if len(kept) == 2:  # B (2 de C + diag dc)^T, where C has no diagonal
        C, c = kept
        s = torch.ones_like(c) if scale is None else scale
        E = C * (2 * de * s)[:, None]
        E.diagonal().copy_(dc * s)
        if scale is None:
            return b @ E.T
        along = 2 * de * torch.linalg.vecdot(C, C) + dc * c  # n mean(da a)
        return (b @ E.T).addcmul_(a, along * scale, value=-1 / n)
    G, H, c = kept  # 2 de (B B^T A - B diag c) + B diag dc
    wide_a, wide_b = a.to(G.dtype), b.to(G.dtype)
    da = ((2 * de * H) @ wide_a).addcmul_(wide_b, dc - 2 * de * c)
    if scale is not None:
        along = (da * wide_a).mean(dim=0)
        da = da.addcmul_(wide_a, along, value=-1).mul_(scale)
    return da.to(a.dtype)


def _swapped(kept: Any) -> tuple[Tensor, ...]:
    """What the gradient with respect to b needs."""
    if len(kept) == 2:
        return kept[0].T, kept[1]
    return kept[1], kept[0], kept[2]
