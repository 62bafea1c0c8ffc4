"""The mean over random directions of a loss on one-dimensional projections, in memory that does not depend on K.

    L(z) = 1/K sum_k l(z w_k),      dL/dz = 1/K sum_k l'(z w_k) w_k^T

Slices are taken a chunk at a time; all views share one product, and projections lie as (k, v, n), because a sort or a
sum over samples wants them contiguous.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import sum_over_ranks, world_size
from reglet.losses.fused import fused
from reglet.losses.slices import Slices
from reglet.types import Scalar

# projections -> the sum over slices of the loss, and its gradient
OneDimensional = Callable[[Float[Tensor, "k v n"]], tuple[Tensor, Float[Tensor, "k v n"]]]

CHUNK = 1 << 18  # projections at a time: one megabyte each of values and gradients, which stays in the cache


def sliced_sum(z: Float[Tensor, "v n d"], blocks: Iterable[Float[Tensor, "_ d"]], loss: OneDimensional) -> Scalar:
    """sum_k loss(z w_k) over the directions in `blocks`."""

    def kernel(z: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        v, n, d = z.shape
        rows = z.reshape(v * n, d)
        value = torch.zeros((), dtype=torch.float64, device=z.device)
        grad = torch.zeros_like(rows)
        for w in _chunks(blocks, CHUNK // (v * n)):
            part, slope = loss((w @ rows.T).view(-1, v, n))
            value += part
            grad.addmm_(slope.view(-1, v * n).T, w)
        return value.to(z.dtype), (grad.view_as(z),)

    return fused(kernel, z)


def sliced_mean(z: Float[Tensor, "v n d"], slices: Slices, loss: OneDimensional, *, gathered: bool) -> Scalar:
    """1/K sum_k loss(z w_k) over this step's directions.

    Where every rank holds the same gathered batch and the same directions, each takes its part of the directions:
    the value is that of one process, and the work is not done W times.
    """
    split = gathered and slices.shared and world_size() > 1
    summed = sliced_sum(z, slices.blocks(z.shape[-1], like=z, split=split), loss)
    slices.advance()
    return (sum_over_ranks(summed) if split else summed) / slices.count


def _chunks(blocks: Iterable[Tensor], least: int) -> Iterator[Tensor]:
    """Blocks, joined until they hold at least `least` directions."""
    waiting: list[Tensor] = []
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) >= least:
            yield torch.cat(waiting)
            waiting = []
    if waiting:
        yield torch.cat(waiting)
