"""The mean over K random directions of a loss on one-dimensional projections.  Its memory does not depend on K.

    L(z) = 1/K sum_k l(z w_k),      dL/dz = 1/K sum_k l'(z w_k) w_k^T

The forward pass sums value and gradient over chunks of directions, and keeps no projections.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import Group, Ranks, rank, sum_over_ranks, world_size
from reglet.losses import cpu_slices
from reglet.losses.shortcut import shortcut
from reglet.losses.slices import Directions, Drawn, Slices
from reglet.types import Scalar

# p (k, v, n) -> sum over the k slices of the mean over the v views of l(p): differentiable, in ordinary torch
OneDimensional = Callable[[Float[Tensor, "k v n"]], Scalar]

BUDGET = 1 << 28  # bytes for the projections of a chunk and what a loss makes of them
COPIES = 64  # tensors as large as the projections that autograd keeps, at most (SIGReg)


def project(z: Float[Tensor, "v n d"], w: Float[Tensor, "k d"]) -> Float[Tensor, "k v n"]:
    """p = z w^T.  Samples are the last axis, so that sorts and sums over samples read contiguous memory."""
    v, n, d = z.shape
    return (w @ z.reshape(v * n, d).T).view(len(w), v, n)


def sliced_sum(z: Float[Tensor, "v n d"], directions: Directions, loss: OneDimensional) -> Scalar:
    """sum_k l(z w_k)."""

    def formula(z: Tensor) -> Tensor:
        none = z.new_zeros(0, z.shape[-1])  # a rank may have no directions
        return loss(project(z, torch.cat([none, *directions.chunks(directions.count)])))

    def kernel(z: Tensor, **_: object) -> tuple[Tensor, list[Tensor]]:
        compute = cpu_slices.value_and_gradient if cpu_slices.serves(z, loss) else value_and_gradient
        value, grad = compute(z.detach(), directions, loss)
        return value, [grad]

    return shortcut(formula, kernel, z, ranks=Ranks((z.shape[1],)))


def value_and_gradient(
    z: Float[Tensor, "v n d"], directions: Directions, loss: OneDimensional
) -> tuple[Tensor, Float[Tensor, "v n d"]]:
    """sum_k l(z w_k) and sum_k l'(z w_k) w_k^T."""
    size = max(1, BUDGET // (COPIES * z[..., 0].numel() * z.element_size()))
    value, grad = z.new_zeros(()), torch.zeros_like(z)
    for chunk in directions.chunks(size):
        for w in chunk.split(size):
            slope, part = torch.func.grad_and_value(loss)(project(z, w))
            value += part
            grad += torch.einsum("kvn,kd->vnd", slope, w)
    return value, grad


@torch.compiler.disable  # slices count their steps: traced with dynamic=False, later steps are compiled anew
def sliced_mean(
    z: Float[Tensor, "v n d"],
    slices: Slices,
    loss: OneDimensional,
    *,
    beside: Callable[[Drawn], Float[Tensor, "n d"]] | None = None,
    gathered: bool,
    group: Group = None,
) -> Scalar:
    """1/K sum_k l(z w_k) over this step's directions.

    beside: samples that are drawn together with the directions; the loss sees them as the last view.

    If all ranks hold the same gathered batch and the same directions, each takes a part of the directions.  The value
    is that of one process, and the work is not done W times.
    """
    split = gathered and slices.shared and world_size(group) > 1
    part = (rank(group), world_size(group)) if split else (0, 1)
    drawn = slices.next(z, part=part)
    if beside is not None:
        z = torch.cat([z, beside(drawn)[None]])
    summed = sliced_sum(z, drawn, loss)
    return (sum_over_ranks(summed, group=group) if split else summed) / slices.count
