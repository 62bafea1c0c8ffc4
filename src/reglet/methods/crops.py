"""Views of several sizes through one network."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.method import Batch


def by_size(net: Callable[[Tensor], Tensor], views: Sequence[Float[Tensor, "n c ..."]]) -> list[Float[Tensor, "n d"]]:
    """The outputs of `net` for every view, with one forward for all views of a size.

    So batch norm uses the statistics of all crops of that size together, as in VISReg and DINO.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, view in enumerate(views):
        groups.setdefault(tuple(view.shape[2:]), []).append(i)
    found: dict[int, Tensor] = {}
    for members in groups.values():
        y = net(torch.cat([views[i] for i in members]))
        found |= zip(members, y.chunk(len(members)), strict=True)
    return [found[i] for i in range(len(views))]


def ordered_pairs(batch: Batch) -> list[tuple[int, int]]:
    """All pairs (view, global view) of different views: for the student and for a teacher of global views."""
    pairs = [(v, g) for g in range(batch.n_global) for v in range(len(batch.views)) if v != g]
    if not pairs:
        raise ValueError(
            f"expected at least two views, one of them global; got {len(batch.views)} with n_global={batch.n_global}"
        )
    return pairs
