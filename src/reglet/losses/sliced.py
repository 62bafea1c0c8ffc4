"""The mean over random directions of a loss on one-dimensional projections, in memory that does not depend on K.

    L(z) = 1/K sum_k l(z w_k),      dL/dz = 1/K sum_k l'(z w_k) w_k^T

Slices are taken a chunk at a time; all views share one product, and projections lie as (k, v, n), because a sort or a
sum over samples wants them contiguous.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import sum_over_ranks, world_size
from reglet.losses.fused import fused
from reglet.losses.slices import Slices
from reglet.types import Scalar

# projections -> the sum over slices of the loss, and its gradient, which may take the projections' place
OneDimensional = Callable[[Float[Tensor, "k v n"]], tuple[Tensor, Float[Tensor, "k v n"]]]

CHUNK = 1 << 18  # projections at a time: one megabyte each of values and gradients, which stays in the cache


def sliced_sum(z: Float[Tensor, "v n d"], chunks: Iterable[Float[Tensor, "_ d"]], loss: OneDimensional) -> Scalar:
    """sum_k loss(z w_k) over the directions in `chunks`."""

    def kernel(z: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        v, n, d = z.shape
        rows = z.reshape(v * n, d)
        value = torch.zeros((), dtype=torch.float64, device=z.device)
        grad = torch.zeros_like(rows)
        memory = rows.new_empty(0, v * n)  # the same for all chunks: fresh pages cost as much as a sort
        for w in chunks:
            if len(memory) < len(w):
                memory = rows.new_empty(len(w), v * n)
            p = torch.mm(w, rows.T, out=memory[: len(w)])
            part, slope = loss(p.view(-1, v, n))
            value += part
            grad.addmm_(slope.view(-1, v * n).T, w)
        return value.to(z.dtype), (grad.view_as(z),)

    return fused(kernel, z)


def sliced_mean(z: Float[Tensor, "v n d"], slices: Slices, loss: OneDimensional, *, gathered: bool) -> Scalar:
    """1/K sum_k loss(z w_k) over this step's directions.

    Where every rank holds the same gathered batch and the same directions, each takes its part of the directions:
    the value is that of one process, and the work is not done W times.
    """
    v, n, d = z.shape
    split = gathered and slices.shared and world_size() > 1
    summed = sliced_sum(z, slices.chunks(d, like=z, split=split, size=CHUNK // (v * n)), loss)
    slices.advance()
    return (sum_over_ranks(summed) if split else summed) / slices.count


def some_at_a_time(directions: Float[Tensor, "k d"], z: Float[Tensor, "v n d"]) -> Sequence[Float[Tensor, "_ d"]]:
    """Given directions in chunks of the same size as drawn ones."""
    v, n, _ = z.shape
    return directions.split(max(1, CHUNK // (v * n)))
