"""Diagonal and off-diagonal energy of C = A^T B / m, which is all that VICReg and Barlow Twins need.

    c_j = C_jj,      e = sum_{i != j} C_ij^2, its mean over the pairs of views

A and B are two views, centred over the samples.  m = n - 1 makes C a covariance.  For Barlow Twins, m = n and the
columns are divided by sqrt(variance + eps).  There are two exact ways, and the cheaper one is taken:

    direct   A^T B,  its squares without the diagonal           O(n d^2), and a d x d matrix
    Gram     |A^T B|_F^2 = <A A^T, B B^T>,  minus |c|^2         O(n^2 d), and an n x n matrix a view

The Gram form subtracts two large numbers.  The rank is at most n.  So if the columns have similar sizes, at least the
fraction 1 - n/d of the energy lies off the diagonal, and for 2n <= d float32 keeps its digits.  If a few columns
dominate, that fraction can vanish.  The CPU then computes the sums in float64.  Other devices do not, because reading
the fraction would mean waiting for them.

The gradient is written by hand.  It needs one product for each view, where autograd needs two for each pair, and almost
no extra pass for batch norm.  On several ranks, each computes the products of its own samples.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import Ranks
from reglet.losses.product import product
from reglet.losses.shortcut import plain, whole
from reglet.precision import no_autocast
from reglet.types import Scalar

SAFE_FRACTION = 1e-2  # of the energy lies off the diagonal: float32 then leaves five digits
SMALL = 1 << 22  # n d^2 up to which a d x d matrix is faster than the many small steps of the Gram form
FEW = 1 << 14  # numbers of a view up to which the single steps of batch norm are faster than one call for all
Pairs = Sequence[tuple[int, int]]


def cross_moments(
    views: Sequence[Float[Tensor, "n d"]], pairs: Pairs, *, m: int, ranks: Ranks, eps: float | None = None
) -> tuple[Float[Tensor, "p d"], Scalar]:
    """c of each pair of views, and e, for the batch that `ranks` hold together.

    eps: divide the columns by their deviation, as batch norm does.
    """
    if not plain(*views):
        return cross_moments_formula(whole(views, ranks), pairs, m=m, eps=eps)
    c, e = _CrossMoments.apply(pairs, m, eps, ranks, *views)
    return c, e


def cross_moments_formula(
    views: Sequence[Float[Tensor, "n d"]], pairs: Pairs, *, m: int, eps: float | None = None
) -> tuple[Float[Tensor, "p d"], Scalar]:
    """The same in ordinary torch."""
    z = [view - view.mean(dim=0) for view in views]
    if eps is not None:
        z = [zc / (zc.square().mean(dim=0) + eps).sqrt() for zc in z]
    n, d = z[0].shape
    c = torch.stack([(z[i] * z[j]).sum(dim=0) for i, j in pairs])
    if not _gram_pays(n, d):
        diagonal = torch.eye(d, dtype=torch.bool, device=c.device)
        e = [product(z[i].T, z[j]).masked_fill(diagonal, 0).square().sum() for i, j in pairs]
        return c / m, torch.stack(e).mean() / m**2
    G = [product(one, one.T) for one in z]
    energy = torch.stack([(G[i] * G[j]).sum() for i, j in pairs])
    return c / m, (energy - c.square().sum(dim=1)).clamp_min(0).mean() / m**2


def _gram_pays(n: int, d: int) -> bool:
    return 2 * n <= d and n * d * d > SMALL


class _Columns(NamedTuple):
    """A view, centred over all ranks and, if eps is given, divided by its deviation."""

    own: Float[Tensor, "n d"]
    scale: Float[Tensor, " d"] | None  # 1 / sqrt(variance + eps)


class _CrossMoments(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, pairs: Pairs, m: int, eps: float | None, ranks: Ranks, *views: Tensor
    ) -> tuple[Tensor, Tensor]:
        columns = _columns(views, eps, ranks)
        own = [one.own for one in columns]
        ctx.pairs, ctx.m, ctx.eps, ctx.ranks, ctx.scale = pairs, m, eps, ranks, [one.scale for one in columns]
        ctx.gram = _gram_pays(ranks.samples, own[0].shape[1])
        moments = _gram if ctx.gram else _direct
        c, e, matrices, everyone = moments(own, pairs, ranks)
        ctx.sizes = len(views), len(matrices)
        ctx.save_for_backward(*views, *own, *everyone, *matrices, c)
        return (c / m).to(own[0].dtype), (e / (m**2 * len(pairs))).to(own[0].dtype)

    @staticmethod
    def backward(ctx: Any, dc: Tensor, de: Tensor) -> tuple[Any, ...]:
        v, count = ctx.sizes
        *saved, c = ctx.saved_tensors
        views, own, everyone, matrices = saved[:v], saved[v : 2 * v], saved[2 * v : -count], saved[-count:]
        if torch.is_grad_enabled():  # create_graph=True: a second derivative may follow
            return None, None, None, None, *_by_formula(ctx, views, dc, de)
        with no_autocast(own[0]):
            ranks: Ranks = ctx.ranks
            dc = dc * (ranks.size / ctx.m)  # DDP's average divides by the number of ranks
            de = de * (2 * ranks.size / (ctx.m**2 * len(ctx.pairs)))  # e is a mean of squares
            if ctx.gram:
                grads = _gram_gradient(own, everyone or own, ctx.scale, matrices, c, dc, de, ctx.pairs, ranks)
            else:
                grads = _direct_gradient(own, ctx.scale, matrices, dc, de, ctx.pairs, ranks)
        return None, None, None, None, *grads


def _by_formula(ctx: Any, views: Sequence[Tensor], dc: Tensor, de: Tensor) -> list[Tensor | None]:
    needed = ctx.needs_input_grad[4:]
    with no_autocast(dc):
        out = cross_moments_formula(whole(views, ctx.ranks), ctx.pairs, m=ctx.m, eps=ctx.eps)
        wanted = [z for z, asked in zip(views, needed, strict=True) if asked]
        grads = iter(torch.autograd.grad(out, wanted, (dc, de), create_graph=True))
    return [next(grads) if asked else None for asked in needed]


def _columns(views: Sequence[Tensor], eps: float | None, ranks: Ranks) -> list[_Columns]:
    n = ranks.samples
    if eps is not None and ranks.size == 1 and views[0].numel() > FEW:
        columns = [_batch_norm(z, eps) for z in views]
    else:
        centred = _centred(views, ranks)
        if eps is None:
            return [_Columns(zc, None) for zc in centred]
        squares = [torch.linalg.vecdot(zc, zc, dim=0) for zc in centred]
        if ranks.size > 1:
            squares = list(ranks.sum(torch.stack(squares)))
        scales = [square.div_(n).add_(eps).rsqrt_() for square in squares]
        columns = [_Columns(zc.mul_(s), s) for zc, s in zip(centred, scales, strict=True)]
    on_cpu = views[0].device.type == "cpu" and views[0].dtype == torch.float32
    if on_cpu and not reduce(torch.minimum, [one.scale for one in columns if one.scale is not None]).min().item() > 0:
        wide = _columns([z.double() for z in views], eps, ranks)  # squares beyond float32
        return [_Columns(one.own.float(), one.scale.float()) for one in wide if one.scale is not None]
    return columns


def _centred(views: Sequence[Tensor], ranks: Ranks) -> list[Tensor]:
    if ranks.size == 1:
        return [z - z.mean(dim=0) for z in views]
    means = ranks.sum(torch.stack([z.sum(dim=0) for z in views])) / ranks.samples
    return [z - mean for z, mean in zip(views, means, strict=True)]


def _batch_norm(z: Float[Tensor, "n d"], eps: float) -> _Columns:
    out, _, scale = torch.native_batch_norm(z, None, None, None, None, True, 0.0, eps)
    return _Columns(out, scale)


def _direct(
    own: Sequence[Tensor], pairs: Pairs, ranks: Ranks
) -> tuple[Tensor, Tensor, Sequence[Tensor], Sequence[Tensor]]:
    """c, the sum of e over the pairs, and A^T B of every pair, which the gradient needs."""
    C = [own[i].T @ own[j] for i, j in pairs]
    if ranks.size > 1:
        C = list(ranks.sum(torch.stack(C)))
    c = torch.stack([one.diagonal() for one in C])
    energies = []
    for one, diagonal in zip(C, c, strict=True):
        one.fill_diagonal_(0)
        energies.append(torch.dot(one.view(-1), one.view(-1)))
        one.diagonal().copy_(diagonal)
    return c, reduce(add, energies), C, ()


def _direct_gradient(
    own: Sequence[Tensor],
    scale: Sequence[Tensor | None],
    C: Sequence[Tensor],
    dc: Tensor,
    de: Tensor,
    pairs: Pairs,
    ranks: Ranks,
) -> list[Tensor]:
    """dA = B E^T and dB = A E, where E = de C + diag dc.  The gradient through batch norm is s (dA - A mean(dA A)).

    mean(dA) is 0, because dA combines centred columns.  n mean(dA A) follows from E and C.
    """
    grads: list[Tensor | None] = [None] * len(own)
    along: list[Tensor | None] = [None] * len(own)
    for (i, j), of_pair, diagonal in zip(pairs, C, dc, strict=True):
        E = of_pair * de
        E.diagonal().copy_(diagonal)
        sides = [(i, j, E.T, 1), (j, i, E, 0)]
        if i == j:  # C is symmetric: both sides in one product
            sides = [(i, i, E.mul_(2), 0)]
        products = None if scale[i] is None else E * of_pair
        for to, other, slope, dim in sides:
            before = grads[to]
            grads[to] = own[other] @ slope if before is None else before.addmm_(own[other], slope)
            if products is not None:
                so_far = along[to]
                along[to] = products.sum(dim) if so_far is None else so_far.add_(products.sum(dim))
    for to, (grad, part, s) in enumerate(zip(grads, along, scale, strict=True)):
        if grad is not None and part is not None and s is not None:
            grad.addcmul_(own[to], part, value=-1 / ranks.samples).mul_(s)
    return [torch.zeros_like(z) if grad is None else grad for z, grad in zip(own, grads, strict=True)]


def _gram(
    own: Sequence[Tensor], pairs: Pairs, ranks: Ranks
) -> tuple[Tensor, Tensor, Sequence[Tensor], Sequence[Tensor]]:
    """c, the sum of e over the pairs, and for the gradient: this rank's rows of A A^T of every view, and on several
    ranks the whole views."""
    every = list(ranks.concat(torch.stack(list(own)), dim=1)) if ranks.size > 1 else list(own)
    G, c, energy, off = _gram_sums(own, every, pairs, ranks)
    unsafe = own[0].device.type == "cpu" and own[0].dtype != torch.float64
    if unsafe and bool((off < SAFE_FRACTION * energy).any()):
        wide, wide_own = [z.double() for z in every], [z.double() for z in own]
        G, c, energy, off = _gram_sums(wide_own, wide, pairs, ranks)
    return c, off.sum(), G, every if ranks.size > 1 else ()


def _gram_sums(
    own: Sequence[Tensor], every: Sequence[Tensor], pairs: Pairs, ranks: Ranks
) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Rows of A A^T, c, |A^T B|^2, and e."""
    widest = torch.float64 if own[0].device.type == "cpu" else own[0].dtype
    G = [mine @ z.T for mine, z in zip(own, every, strict=True)]
    c = torch.stack([torch.linalg.vecdot(every[i], every[j], dim=0) for i, j in pairs])
    energy = ranks.sum(torch.stack([(G[i] * G[j]).sum(dtype=widest) for i, j in pairs]))
    return G, c, energy, (energy - c.square().sum(dim=1, dtype=widest)).clamp_min(0)


def _gram_gradient(
    own: Sequence[Tensor],
    every: Sequence[Tensor],
    scale: Sequence[Tensor | None],
    G: Sequence[Tensor],
    c: Tensor,
    dc: Tensor,
    de: Tensor,
    pairs: Pairs,
    ranks: Ranks,
) -> list[Tensor]:
    """dA = de (B B^T A - B diag c) + B diag dc.  The gradient through batch norm follows as in `_direct_gradient`."""
    kind = G[0].dtype
    mixed: list[Tensor | None] = [None] * len(own)  # for each view, the sum of de B B^T over its partners
    for i, j in pairs:
        for to, other in ((i, j), (j, i)):
            before = mixed[to]
            mixed[to] = G[other] * de if before is None else before.add_(G[other] * de)
    grads = []
    for to, M in enumerate(mixed):
        if M is None:
            grads.append(torch.zeros_like(own[to]))
            continue
        grad = M @ every[to].to(kind)
        for p, (i, j) in enumerate(pairs):
            for me, other in ((i, j), (j, i)):
                if me == to:
                    grad.addcmul_(own[other].to(kind), dc[p] - de * c[p])
        s, mine = scale[to], own[to].to(kind)
        if s is not None:
            along = ranks.sum(torch.linalg.vecdot(grad, mine, dim=0)) / ranks.samples
            grad = grad.addcmul_(mine, along, value=-1).mul_(s)
        grads.append(grad.to(own[to].dtype))
    return grads
