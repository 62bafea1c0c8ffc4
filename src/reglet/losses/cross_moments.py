"""Diagonal and off-diagonal energy of A^T B: all that VICReg and Barlow Twins want of it, by the cheaper exact way.

A and B are two views, centred over the samples and, for Barlow Twins, divided by sqrt(variance + eps).

    c_j = (A^T B)_jj,      e = sum_{i != j} (A^T B)_ij^2

    direct   C = A^T B,  |C|^2 without its diagonal             O(n d^2), and a d x d matrix
    Gram     |A^T B|_F^2 = <A A^T, B B^T>,  minus |c|^2         O(n^2 d), and an n x n matrix a view

The Gram form subtracts two large numbers.  With rank at most n, at least the fraction 1 - n/d of the energy lies off
the diagonal when the columns are of one size, so for 2n <= d float32 keeps its digits.  When some column dominates,
that fraction can still vanish; then the CPU takes the same sums in float64.  Other devices do not: to look at the
fraction would be to wait for them.

The gradient is written by hand, because it shares its products: one for each view where autograd takes two for each
pair, and no pass of its own for batch norm.  On several ranks each takes the products of its own samples.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import Ranks
from reglet.losses.product import product
from reglet.losses.shortcut import plain, whole
from reglet.precision import no_autocast

SAFE_FRACTION = 1e-2  # of the energy off the diagonal: float32 then leaves five digits
Pairs = Sequence[tuple[int, int]]


def cross_moments(
    views: Sequence[Float[Tensor, "n d"]], pairs: Pairs, *, ranks: Ranks, eps: float | None = None
) -> tuple[Float[Tensor, "p d"], Float[Tensor, " p"]]:
    """c and e of each pair of views, for the batch that `ranks` hold together.  eps: standardize as batch norm does."""
    if not plain(*views):
        return cross_moments_formula(whole(views, ranks), pairs, eps=eps)
    c, e = _CrossMoments.apply(pairs, eps, ranks, *views)
    return c, e


def cross_moments_formula(
    views: Sequence[Float[Tensor, "n d"]], pairs: Pairs, *, eps: float | None = None
) -> tuple[Float[Tensor, "p d"], Float[Tensor, " p"]]:
    """The same in ordinary torch."""
    z = [view - view.mean(dim=0) for view in views]
    if eps is not None:
        z = [zc / (zc.square().mean(dim=0) + eps).sqrt() for zc in z]
    n, d = z[0].shape
    c = torch.stack([(z[i] * z[j]).sum(dim=0) for i, j in pairs])
    if 2 * n > d:
        diagonal = torch.eye(d, dtype=torch.bool, device=c.device)
        e = [product(z[i].T, z[j]).masked_fill(diagonal, 0).square().sum() for i, j in pairs]
        return c, torch.stack(e)
    G = [product(one, one.T) for one in z]
    energy = torch.stack([(G[i] * G[j]).sum() for i, j in pairs])
    return c, (energy - c.square().sum(dim=1)).clamp_min(0)


class _Columns(NamedTuple):
    """A view, centred over all ranks and divided by its deviation where that is wanted."""

    own: Float[Tensor, "n d"]
    scale: Float[Tensor, " d"] | None  # 1 / sqrt(variance + eps)


class _CrossMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pairs: Pairs, eps: float | None, ranks: Ranks, *views: Tensor) -> tuple[Tensor, Tensor]:
        columns = _columns(views, eps, ranks)
        own = [one.own for one in columns]
        ctx.pairs, ctx.eps, ctx.ranks, ctx.scale = pairs, eps, ranks, [one.scale for one in columns]
        ctx.direct = 2 * ranks.samples > own[0].shape[1]
        moments = _direct if ctx.direct else _gram
        c, e, matrices, everyone = moments(own, pairs, ranks)
        ctx.sizes = len(views), len(matrices)
        ctx.save_for_backward(*views, *own, *everyone, *matrices, c)
        return c.to(own[0].dtype), e.to(own[0].dtype)

    @staticmethod
    def backward(ctx: Any, dc: Tensor, de: Tensor) -> tuple[Any, ...]:
        v, count = ctx.sizes
        *saved, c = ctx.saved_tensors
        views, own, everyone, matrices = saved[:v], saved[v : 2 * v], saved[2 * v : -count], saved[-count:]
        if torch.is_grad_enabled():  # create_graph=True: a second derivative may follow
            return None, None, None, *_by_formula(ctx, views, dc, de)
        with no_autocast(own[0]):
            dc, de = dc * ctx.ranks.size, de * ctx.ranks.size
            if ctx.direct:
                grads = _direct_gradient(own, ctx.scale, matrices, c, dc, de, ctx.pairs, ctx.ranks)
            else:
                grads = _gram_gradient(own, everyone or own, ctx.scale, matrices, c, dc, de, ctx.pairs, ctx.ranks)
        return None, None, None, *grads


def _by_formula(ctx: Any, views: Sequence[Tensor], dc: Tensor, de: Tensor) -> list[Tensor | None]:
    needed = ctx.needs_input_grad[3:]
    with no_autocast(dc):
        out = cross_moments_formula(whole(views, ctx.ranks), ctx.pairs, eps=ctx.eps)
        wanted = [z for z, asked in zip(views, needed, strict=True) if asked]
        grads = iter(torch.autograd.grad(out, wanted, (dc, de), create_graph=True))
    return [next(grads) if asked else None for asked in needed]


def _columns(views: Sequence[Tensor], eps: float | None, ranks: Ranks) -> list[_Columns]:
    n = ranks.samples
    if ranks.size == 1:
        means = [z.mean(dim=0) for z in views]
    else:
        means = list(ranks.sum(torch.stack([z.sum(dim=0) for z in views])) / n)
    centred = [z - mean for z, mean in zip(views, means, strict=True)]
    if eps is None:
        return [_Columns(zc, None) for zc in centred]
    squares = ranks.sum(torch.stack([torch.linalg.vector_norm(zc, dim=0).square() for zc in centred]))
    scale = (squares / n + eps).rsqrt()
    if scale.device.type == "cpu" and scale.dtype == torch.float32 and not bool((scale > 0).all()):
        wide = _columns([z.double() for z in views], eps, ranks)  # squares beyond float32
        return [_Columns(one.own.float(), one.scale.float()) for one in wide if one.scale is not None]
    return [_Columns(zc.mul_(s), s) for zc, s in zip(centred, scale, strict=True)]


def _direct(
    own: Sequence[Tensor], pairs: Pairs, ranks: Ranks
) -> tuple[Tensor, Tensor, Sequence[Tensor], Sequence[Tensor]]:
    """c, e, and for the gradient C without its diagonal."""
    C = [own[i].T @ own[j] for i, j in pairs]
    if ranks.size > 1:
        C = list(ranks.sum(torch.stack(C)))
    c = torch.stack([one.diagonal() for one in C])
    for one in C:
        one.fill_diagonal_(0)
    return c, torch.stack([torch.dot(one.view(-1), one.view(-1)) for one in C]), C, ()


def _direct_gradient(
    own: Sequence[Tensor],
    scale: Sequence[Tensor | None],
    C: Sequence[Tensor],
    c: Tensor,
    dc: Tensor,
    de: Tensor,
    pairs: Pairs,
    ranks: Ranks,
) -> list[Tensor]:
    """dA = B (2 de C + diag dc)^T; and the gradient of batch norm from it, s (dA - A mean(dA A)).

    mean(dA) is 0, because dA is a combination of centred columns.  n mean(dA A) is known from C.
    """
    grads: list[Tensor | None] = [None] * len(own)

    def add(to: int, other: int, C: Tensor, dc: Tensor, twice_de: Tensor, c: Tensor) -> None:
        s = scale[to]
        E = C * twice_de if s is None else C * (twice_de * s)[:, None]
        E.diagonal().copy_(dc if s is None else dc * s)
        before = grads[to]
        grad = own[other] @ E.T if before is None else before.addmm_(own[other], E.T)
        if s is not None:
            along = (twice_de * torch.linalg.vecdot(C, C) + dc * c) * s
            grad.addcmul_(own[to], along, value=-1 / ranks.samples)
        grads[to] = grad

    for p, (i, j) in enumerate(pairs):
        if i == j:  # C is symmetric: both sides in one product
            add(i, i, C[p], 2 * dc[p], 4 * de[p], c[p])
            continue
        add(i, j, C[p], dc[p], 2 * de[p], c[p])
        add(j, i, C[p].T, dc[p], 2 * de[p], c[p])
    return [torch.zeros_like(z) if grad is None else grad for z, grad in zip(own, grads, strict=True)]


def _gram(
    own: Sequence[Tensor], pairs: Pairs, ranks: Ranks
) -> tuple[Tensor, Tensor, Sequence[Tensor], Sequence[Tensor]]:
    """c, e, and for the gradient this rank's rows of A A^T of every view; and on several ranks the whole views."""
    every = list(ranks.concat(torch.stack(list(own)), dim=1)) if ranks.size > 1 else list(own)
    G, c, energy, off = _gram_sums(own, every, pairs, ranks)
    unsafe = own[0].device.type == "cpu" and own[0].dtype != torch.float64
    if unsafe and bool((off < SAFE_FRACTION * energy).any()):
        wide, wide_own = [z.double() for z in every], [z.double() for z in own]
        G, c, energy, off = _gram_sums(wide_own, wide, pairs, ranks)
    return c, off, G, every if ranks.size > 1 else ()


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
    """dA = 2 de (B B^T A - B diag c) + B diag dc; and the gradient of batch norm from it, as above."""
    kind = G[0].dtype
    mixed: list[Tensor | None] = [None] * len(own)  # of each view: the sum over its partners of 2 de B B^T
    for p, (i, j) in enumerate(pairs):
        for to, other in ((i, j), (j, i)):
            before = mixed[to]
            mixed[to] = G[other] * (2 * de[p]) if before is None else before.add_(G[other] * (2 * de[p]))
    grads = []
    for to, M in enumerate(mixed):
        if M is None:
            grads.append(torch.zeros_like(own[to]))
            continue
        grad = M @ every[to].to(kind)
        for p, (i, j) in enumerate(pairs):
            for me, other in ((i, j), (j, i)):
                if me == to:
                    grad.addcmul_(own[other].to(kind), dc[p] - 2 * de[p] * c[p])
        s, mine = scale[to], own[to].to(kind)
        if s is not None:
            along = ranks.sum(torch.linalg.vecdot(grad, mine, dim=0)) / ranks.samples
            grad = grad.addcmul_(mine, along, value=-1).mul_(s)
        grads.append(grad.to(own[to].dtype))
    return grads
