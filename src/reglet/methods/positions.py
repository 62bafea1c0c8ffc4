"""Fixed positions of tokens by sines and cosines.  They have any length and nothing to train.

Vaswani et al. 2017, arXiv:1706.03762, section 3.5:

    p_i = (sin(i w_0), ..., sin(i w_m), cos(i w_0), ..., cos(i w_m)),     w_j = 10000^(-j/m'),  m' frequencies

On a grid, half of the features are for the row and half for the column, as in MAE and I-JEPA.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.backbones.protocol import Grid

LONGEST = 10_000.0


def line_positions(count: int, *, width: int, device: torch.device | None = None) -> Float[Tensor, "t d"]:
    """The positions of `count` places in a row.  `width` must be even.

    >>> [round(float(p), 3) for p in line_positions(3, width=2)[1]]
    [0.841, 0.54]
    """
    if width % 2:
        raise ValueError(f"positions have as many sines as cosines, so their width must be even; got {width}")
    frequencies = LONGEST ** (-torch.arange(width // 2, dtype=torch.float32, device=device) / (width // 2))
    angles = torch.arange(count, dtype=torch.float32, device=device)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def grid_positions(grid: Grid, *, width: int, device: torch.device | None = None) -> Float[Tensor, "t d"]:
    """The positions of a grid, row by row.  `width` must be a multiple of 4.

    >>> grid_positions((2, 3), width=8).shape
    torch.Size([6, 8])
    """
    if width % 4:
        raise ValueError(f"the width of positions on a grid must be a multiple of 4, got {width}")
    rows, columns = (line_positions(side, width=width // 2, device=device) for side in grid)
    return torch.cat([rows.repeat_interleave(grid[1], 0), columns.repeat(grid[0], 1)], dim=1)
