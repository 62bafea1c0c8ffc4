"""The mean over random directions of a loss on one-dimensional projections, in memory that does not depend on K.

    L(z) = 1/K sum_k l(z w_k),      dL/dz = 1/K sum_k l'(z w_k) w_k^T

Slices are taken a chunk at a time; all views share one product, and projections lie as (k, v, n), because a sort or a
sum over samples wants them contiguous.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import sum_over_ranks, world_size
from reglet.losses.fused import fused
from reglet.losses.slices import Slices
from reglet.threads import in_shares, memory, shares
from reglet.types import Scalar


class OneDimensional(Protocol):
    """A loss on the projections that lie in one piece of memory, made for that memory.

    A call gives the sum over slices of the loss of what now lies there, and puts its gradient, but for a factor, in the
    place of the projections.
    """

    factor: float

    def __call__(self) -> Tensor: ...


Make = Callable[[Float[Tensor, "k v n"]], OneDimensional]

# (size, own, of) -> the directions of share `own` of `of`, `size` at a time
Chunks = Callable[[int, int, int], Iterable[Float[Tensor, "_ d"]]]

WORTHWHILE = 1 << 16  # numbers in the embeddings: with fewer, threads are waited for longer than they work
CHUNK = 1 << 18  # projections at a time, of all shares together: half a megabyte for each of two


def sliced_sum(z: Float[Tensor, "v n d"], chunks: Chunks, make: Make) -> Scalar:
    """sum_k loss(z w_k) over the directions in `chunks`, with memory of its own per thread."""

    def kernel(z: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        v, n, _ = z.shape
        of = shares(z.device) if z.numel() >= WORTHWHILE else 1
        size = max(1, CHUNK // (v * n * of))
        parts = in_shares(lambda own, of: _share(z, chunks(size, own, of), make), of)
        value, grad = (sum(every[1:], every[0]) for every in zip(*parts, strict=True))
        return value.to(z.dtype), (grad.view_as(z),)

    return fused(kernel, z)


def _share(
    z: Float[Tensor, "v n d"], chunks: Iterable[Float[Tensor, "_ d"]], make: Make
) -> tuple[Tensor, Float[Tensor, "vn d"]]:
    """What need not be done for every chunk is done before: threads wait for one another at each call of torch, even at
    one that makes a view, because each takes Python's lock."""
    v, n, d = z.shape
    rows = z.reshape(v * n, d)
    columns = rows.T
    values = [z.new_zeros(())]  # a share may be empty
    grad = torch.zeros_like(rows)  # not `memory`: a quick thread may take two shares
    projections = rows.new_empty(0, v * n)
    for w in chunks:
        if len(projections) != len(w):  # the first chunk, and a last one that is shorter
            projections = memory("projections", len(w), v * n, dtype=z.dtype, device=z.device)
            slope, loss = projections.T, make(projections.view(-1, v, n))
        torch.mm(w, columns, out=projections)
        values.append(loss())
        grad.addmm_(slope, w, alpha=loss.factor)
    return torch.stack(values).double().sum(), grad


def sliced_mean(z: Float[Tensor, "v n d"], slices: Slices, make: Make, *, gathered: bool) -> Scalar:
    """1/K sum_k loss(z w_k) over this step's directions.

    Where every rank holds the same gathered batch and the same directions, each takes its part of the directions:
    the value is that of one process, and the work is not done W times.
    """
    split = gathered and slices.shared and world_size() > 1

    def drawn(size: int, own: int, of: int) -> Iterable[Tensor]:
        return slices.chunks(z.shape[-1], like=z, split=split, size=size, share=(own, of))

    summed = sliced_sum(z, drawn, make)
    slices.advance()
    return (sum_over_ranks(summed) if split else summed) / slices.count


def given(directions: Float[Tensor, "k d"]) -> Chunks:
    """Directions that are there already, of which a share may have none."""

    def chunks(size: int, own: int, of: int) -> Iterable[Tensor]:
        some = directions.tensor_split(of)[own]
        return some.split(size) if len(some) else ()

    return chunks
