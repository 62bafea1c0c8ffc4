"""The two terms of SMI with their gradients.  No matrix of correlations is kept, and no product is computed twice.

For unit rows u_r, a weight W for each two views, and f = I^2 or I:

    L = 1/2 sum_{r, s} W f(u_r u_s),      dL/du_r = sum_s W f'(u_r u_s) u_s

Rows are taken in chunks, and the products of a chunk are not kept.  One process takes only the rows s >= r, and uses
their products for both sides.  On several ranks, each takes the rows of its own samples.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import Ranks
from reglet.losses.unit_rows import UnitRows

ROWS = 128  # of a chunk
On = Literal["sq", "hinge", "neg"]
Off = Literal["sq", "lin"]


def redundancy_kernel(
    rows: UnitRows, W: list[list[float]], *, eps: float, off: Off, ranks: Ranks, gradient: bool
) -> tuple[Tensor, list[Tensor]]:
    """W[a][b]: the weight of the information between views a and b; symmetric."""
    v, m, d = rows.whole.shape
    n, first, alone = rows.own.shape[1], ranks.own.start, ranks.size == 1
    own, u = rows.own.reshape(v * n, d), rows.whole.reshape(v * m, d)
    value, grad = u.new_zeros(()), torch.zeros_like(own) if gradient else own
    for a in range(v):
        weight = u.new_empty(v * m)
        for part, of_view in zip(weight.split(m), W[a], strict=True):
            part.fill_(of_view)
        for i in range(0, n, ROWS):
            j = min(i + ROWS, n)
            mine = slice(a * n + i, a * n + j)
            start = 0 if not alone else mine.start if W[a][a] else (a + 1) * m
            if start == v * m:
                continue
            columns = weight[start:].clone()
            if start == mine.start and alone:
                columns[: j - i] /= 2  # both (r, s) and (s, r) lie in the chunk
            same = [b * m + first + i - start for b in range(v) if b * m + first + i >= start]
            found, slope = _information(own[mine] @ u[start:].T, columns, same, eps=eps, off=off)
            value += found
            if gradient:
                grad[mine].addmm_(slope, u[start:])
                if alone:
                    grad[start:].addmm_(slope.T, own[mine])
    value = ranks.sum(value) if alone else ranks.sum(value) / 2
    return value, list(rows.gradient(grad.view(v, n, d))) if gradient else []


def _information(
    rho: Float[Tensor, "r s"], weight: Float[Tensor, " s"], same: list[int], *, eps: float, off: Off
) -> tuple[Tensor, Tensor]:
    """sum W f(rho) and W f'(rho), with I = -1/2 log(1 - rho^2 + eps).  same: the diagonals that are left out."""
    inside = rho.square().clamp_(max=1).neg_().add_(eps)
    log = inside.log1p()
    for place in same:
        rho.diagonal(place).zero_()
        log.diagonal(place).zero_()
    slope = rho.div_(inside.add_(1))
    if off == "lin":
        return -0.5 * (log @ weight).sum(), slope.mul_(weight)
    slope.mul_(log).mul_(-weight)
    return 0.25 * (log.square_() @ weight).sum(), slope


def alignment_kernel(
    rows: UnitRows,
    compared: list[tuple[int, int]],
    *,
    eps: float,
    on: On,
    target: float,
    signed: bool,
    ranks: Ranks,
    gradient: bool,
) -> tuple[Tensor, list[Tensor]]:
    """sum over pairs of views and samples of (target - I)^2, by 1 - rho = |a - b|^2 / 2."""
    u, value = rows.own, rows.own.new_zeros(())
    grad = torch.zeros_like(u) if gradient else u
    for i, j in compared:
        difference = u[i] - u[j]
        gap = difference.square().sum(dim=1)
        if rows.any_short:  # a row shorter than 1
            gap += 2 - u[i].square().sum(dim=1) - u[j].square().sum(dim=1)
        gap /= 2
        if signed:
            counts = gap <= 1
            gap = gap.clamp_max(1)
        inside = (gap * (2 - gap)).clamp_min_(0) + eps
        short = target + 0.5 * inside.log()  # target - I
        short = short.clamp_min(0) if on == "hinge" else short
        value += (short - target).sum() if on == "neg" else short.square().sum()
        if not gradient:
            continue
        slope = (1 - gap) / inside * (1 if on == "neg" else 2 * short)  # with respect to 1 - rho
        if signed:
            slope *= counts
        step = slope.unsqueeze(1) * difference
        grad[i] += step
        grad[j] -= step
        if rows.any_short:  # d(1 - rho)/du_i is -u_j; u_i - u_j may replace it only where u_i has unit length
            for one in (i, j):
                at_floor = rows.at_floor[one]
                grad[one] -= torch.where(at_floor, slope.unsqueeze(1) * u[one], 0)
    return ranks.sum(value), list(rows.gradient(grad)) if gradient else []
