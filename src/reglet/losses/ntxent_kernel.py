"""NT-Xent with its gradient, in two passes over one matrix of similarities.

With E_ik = exp(u_i u_k / tau), row i of view a, and its positive j in view b:

    l_ij = log(1 + N / P),    P = E_ij,    N = sum of E_ik over the samples k != i of views a and b
    dl_ij / ds_ik = w E_ik,   dl_ij / ds_ij = -w N,     w = 1 / (P + N)

E is symmetric, so the gradient of u_i is sum_k E_ik (w_i + w_k) u_k.  A rank needs the rows of E of its own samples,
and the w of all samples.  One matrix serves all pairs of views.  No maximum is subtracted, because float32 holds
exp(1/tau).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import Ranks
from reglet.losses.unit_rows import unit_rows

LEAST_TEMPERATURE = 0.02  # exp(1/tau), summed over a batch, is then far below the largest float32
CHUNK = 1 << 18  # similarities at a time: they stay in the cache


def ntxent_kernel(
    *views: Float[Tensor, "n d"], compared: list[tuple[int, int]], temperature: float, ranks: Ranks, gradient: bool
) -> tuple[Tensor, list[Tensor]]:
    rows = unit_rows(views, ranks=ranks)
    v, m, d = rows.whole.shape
    n, first = rows.own.shape[1], ranks.own.start
    keys = (rows.whole / temperature).view(v * m, d)
    step = max(1, CHUNK // (v * v * m))
    chunks = [slice(i, min(i + step, n)) for i in range(0, n, step)]
    E, P, N = [], [], []  # by chunk of samples: E[a, i, b, k], P[a, b, i] and N[a, b, i]
    for chunk in chunks:
        queries = rows.own[:, chunk].reshape(-1, d)
        E.append((queries @ keys.T).exp_().view(v, -1, v, m))
        same = _same_sample(E[-1], first + chunk.start)
        P.append(same.clone())
        same.zero_()
        N.append(E[-1].sum(dim=3).transpose(1, 2))
    counted = torch.stack([torch.cat(P, dim=2), torch.cat(N, dim=2)])
    positive, negative = ranks.concat(counted, dim=3)
    negative += negative.diagonal(dim1=0, dim2=1).T[:, None].clone()  # the negatives in the row's own view

    part = _part_of_pairs(v, m, compared, like=keys)
    value = (part * torch.log1p(negative / positive)).sum()
    if not gradient:
        return value, []

    w = part / (positive + negative)
    slope = -w * negative
    slope = (slope + slope.transpose(0, 1))[:, :, ranks.own]
    w.diagonal(dim1=0, dim2=1).copy_(w.sum(dim=1).T)  # a row meets its own view in all of its pairs
    own_w, other_w = w[:, :, ranks.own].transpose(1, 2).unsqueeze(3), w.transpose(0, 1).unsqueeze(1)
    parts = []
    for chunk, block in zip(chunks, E, strict=True):
        block *= own_w[:, chunk] + other_w
        _same_sample(block, first + chunk.start).copy_(slope[:, :, chunk])
        parts.append((block.view(-1, v * m) @ keys).view(v, -1, d))
    g = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return value, list(rows.gradient(g))


def _same_sample(block: Float[Tensor, "v i v m"], first: int) -> Float[Tensor, "v v i"]:
    """The entries [a, b, i] in which a row meets its own sample."""
    return block[..., first : first + block.shape[1]].diagonal(dim1=1, dim2=3)


def _part_of_pairs(v: int, m: int, compared: list[tuple[int, int]], *, like: Tensor) -> Float[Tensor, "v v 1"]:
    """The weight in the mean of a row of view a whose positive is in view b."""
    part = like.new_zeros(v, v, 1)
    for a, b in compared:
        part[a, b] = part[b, a] = 1 / (2 * m * len(compared))
    return part
