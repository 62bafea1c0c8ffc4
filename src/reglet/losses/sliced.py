"""The mean over random directions of a loss on one-dimensional projections, in memory that does not depend on K.

    L(z) = 1/K sum_k l(z w_k),      dL/dz = 1/K sum_k l'(z w_k) w_k^T

Slices are taken a chunk at a time; all views share one product, and projections lie as (k, v, n), because a sort or a
sum over samples wants them contiguous.
"""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import sum_over_ranks, world_size
from reglet.losses.fused import fused
from reglet.losses.slices import Slices
from reglet.threads import in_shares, memory, shares
from reglet.types import Scalar

# projections -> the sum over slices of the loss, and its gradient as a tensor, which may take the projections' place,
# and a factor
OneDimensional = Callable[[Float[Tensor, "k v n"]], tuple[Tensor, Float[Tensor, "k v n"], float]]

# (size, own, of) -> the directions of share `own` of `of`, `size` at a time
Chunks = Callable[[int, int, int], Iterable[Float[Tensor, "_ d"]]]

WORTHWHILE = 1 << 16  # numbers in the embeddings: with fewer, threads are waited for longer than they work
CHUNK = 1 << 18  # projections at a time, of all shares together: a megabyte, which stays in the cache


def sliced_sum(z: Float[Tensor, "v n d"], chunks: Chunks, loss: Callable[[], OneDimensional]) -> Scalar:
    """sum_k loss(z w_k) over the directions in `chunks`, with a loss of its own, and so its own memory, per thread."""

    def kernel(z: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        v, n, _ = z.shape
        of = shares(z.device) if z.numel() >= WORTHWHILE else 1
        size = max(1, CHUNK // (v * n * of))
        parts = in_shares(lambda own, of: _share(z, chunks(size, own, of), loss()), of)
        value, grad = (sum(every[1:], every[0]) for every in zip(*parts, strict=True))
        return value.to(z.dtype), (grad.view_as(z),)

    return fused(kernel, z)


def _share(
    z: Float[Tensor, "v n d"], chunks: Iterable[Float[Tensor, "_ d"]], loss: OneDimensional
) -> tuple[Tensor, Float[Tensor, "vn d"]]:
    v, n, d = z.shape
    rows = z.reshape(v * n, d)
    value = torch.zeros((), dtype=torch.float64, device=z.device)
    grad = torch.zeros_like(rows)  # not `memory`: a quick thread may take two shares
    projections = rows.new_empty(0, v * n)  # the same for all chunks
    for w in chunks:
        if len(projections) < len(w):
            projections = memory("projections", len(w), v * n, dtype=z.dtype, device=z.device)
        p = torch.mm(w, rows.T, out=projections[: len(w)])
        part, slope, factor = loss(p.view(-1, v, n))
        value += part
        grad.addmm_(slope.view(-1, v * n).T, w, alpha=factor)
    return value, grad


def sliced_mean(
    z: Float[Tensor, "v n d"], slices: Slices, loss: Callable[[], OneDimensional], *, gathered: bool
) -> Scalar:
    """1/K sum_k loss(z w_k) over this step's directions.

    Where every rank holds the same gathered batch and the same directions, each takes its part of the directions:
    the value is that of one process, and the work is not done W times.
    """
    split = gathered and slices.shared and world_size() > 1

    def drawn(size: int, own: int, of: int) -> Iterable[Tensor]:
        return slices.chunks(z.shape[-1], like=z, split=split, size=size, share=(own, of))

    summed = sliced_sum(z, drawn, loss)
    slices.advance()
    return (sum_over_ranks(summed) if split else summed) / slices.count


def given(directions: Float[Tensor, "k d"]) -> Chunks:
    """Directions that are there already."""
    return lambda size, own, of: directions.split(size)[own::of]
