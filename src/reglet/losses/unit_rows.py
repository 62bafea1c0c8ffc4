"""Rows divided by their length, and the gradient of that division, for the kernels of NT-Xent and SMI."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reglet.check import readable
from reglet.dist import Ranks
from reglet.precision import unit_length

FLOOR = 1e-8  # a shorter row is divided by this instead of its length


def unit(z: Tensor, *, dim: int = -1) -> Tensor:
    """z / |z| along `dim`.  The CPU looks at the lengths first, and takes the short way if they are of usual size."""
    length = torch.linalg.vector_norm(z, dim=dim, keepdim=True)
    return z / length if readable(length) and is_usual(length.detach()) else unit_length(z, dim=dim)


def is_usual(length: Tensor) -> bool:
    """Whether rows can be divided by these lengths without overflow or underflow."""
    least, most = length.aminmax()
    return least.item() > 1e-15 and most.item() < 1e18


class UnitRows(NamedTuple):
    """own: u = z / max(|z|, FLOOR), of this rank.  length: |z|, floored.  whole: u of all ranks."""

    own: Float[Tensor, "v n d"]
    length: Float[Tensor, "v n 1"]
    whole: Float[Tensor, "v m d"]
    any_short: bool  # whether some row may be at the floor

    @property
    def at_floor(self) -> Bool[Tensor, "v n 1"]:
        return self.length <= FLOOR

    def gradient(self, g: Float[Tensor, "v n d"]) -> Float[Tensor, "v n d"]:
        """dz = (du - u <u, du>) / |z| for du = `g`, which is overwritten.

        A row at the floor is divided by a constant, so there dz = du / FLOOR.
        """
        along = torch.linalg.vecdot(self.own, g).unsqueeze(-1)
        if self.any_short:
            along.masked_fill_(self.at_floor, 0)
        return g.addcmul_(self.own, along, value=-1).div_(self.length)


def unit_rows(views: Sequence[Float[Tensor, "n d"]], *, ranks: Ranks, center: bool = False) -> UnitRows:
    """center: subtract each row's mean first, so that products of rows are Pearson correlations."""
    u = torch.stack(list(views))
    if center:
        u -= u.mean(dim=-1, keepdim=True)
    length, any_short = row_lengths(u)
    u /= length
    return UnitRows(u, length, ranks.concat(u, dim=1), any_short)


def row_lengths(z: Float[Tensor, "v n d"]) -> tuple[Float[Tensor, "v n 1"], bool]:
    """max(|z|, FLOOR), and whether some row may be at the floor.

    float32 cannot hold the squares of numbers above 1e19.  Then each row is divided by its largest number first.  Other
    devices than the CPU always do so, because looking at the numbers would mean waiting for them.
    """
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    on_cpu = z.device.type == "cpu"
    shortest, longest = (x.item() for x in length.aminmax()) if on_cpu else (0.0, math.inf)
    if not longest < math.inf:
        largest = torch.linalg.vector_norm(z, torch.inf, dim=-1, keepdim=True).clamp_min(1)
        length = torch.linalg.vector_norm(z / largest, dim=-1, keepdim=True) * largest
    if shortest <= FLOOR:
        length = length.clamp_min(FLOOR)
    return length, shortest <= FLOOR
