"""Anisotropic scale by resampling.  It is no group action: it loses detail, so it has no inverse, and two resizes in a
row differ from a single one.  Only a resize to the same size is exact.

It is separable, so it commutes with flips, and with quarter turns if height and width change places.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.groups.action import Grid


def resize(x: Float[Tensor, "n c h w"], size: Grid, *, antialias: bool = False) -> Float[Tensor, "n c h2 w2"]:
    """Bicubic, without antialiasing as in SER; the same for images and maps.

    >>> import torch
    >>> resize(torch.ones(1, 1, 4, 4), (2, 6)).shape
    torch.Size([1, 1, 2, 6])
    """
    check.tensor("x", x, None, None, None, None)
    check.grid(size=size)
    if tuple(x.shape[2:]) == tuple(size):
        return x
    return F.interpolate(x, size=size, mode="bicubic", align_corners=False, antialias=antialias)


def resize_tokens(y: Float[Tensor, "n t d"], *, grid: Grid, to: Grid) -> Float[Tensor, "n t2 d"]:
    """`resize` of tokens that fill `grid` row by row.

    >>> import torch
    >>> resize_tokens(torch.ones(1, 16, 8), grid=(4, 4), to=(6, 6)).shape
    torch.Size([1, 36, 8])
    """
    check.grid(grid=grid, to=to)
    check.tensor("y", y, None, grid[0] * grid[1], None)
    if tuple(grid) == tuple(to):
        return y
    return resize(y.transpose(1, 2).unflatten(2, grid), to).flatten(2).transpose(1, 2)
