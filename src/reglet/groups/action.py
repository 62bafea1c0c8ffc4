"""D4 on images and on token maps: a permutation of places, so nothing is rounded.

    (g x)[place] = x[table[g][place]]

Each grid has a table of eight index vectors, which is kept on the device.  A batch needs one number for each sample and
one gather.
"""

import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from reglet import check
from reglet.constants import kept_on_device
from reglet.groups.d4 import D4

Grid = tuple[int, int]


def act(x: Shaped[Tensor, "n c h w"], g: D4) -> Shaped[Tensor, "n c h2 w2"]:
    """g x, with an element for each image or map.

    On a grid that is not square, odd turns exchange height and width.  So all elements must turn by an odd number of
    quarters, or all by an even number.

    >>> quarter = D4(torch.tensor([1]), torch.tensor([False]))
    >>> act(torch.tensor([[1, 2], [3, 4]]).view(1, 1, 2, 2), quarter).squeeze().tolist()
    [[2, 4], [1, 3]]
    """
    check.tensor("x", x, None, None, None, None, floating=False)
    _, c, h, w = x.shape
    places = _places(g, x, grid=(h, w))
    out = x.flatten(2).gather(2, places[:, None].expand(-1, c, -1))
    return out.unflatten(2, grid_after(g, (h, w)))


def act_on_tokens(y: Shaped[Tensor, "n t d"], g: D4, *, grid: Grid) -> Shaped[Tensor, "n t d"]:
    """g y for tokens that fill `grid` row by row.  The result fills `grid_after(g, grid)`.

    >>> tokens = torch.tensor([1, 2, 3, 4]).view(1, 4, 1)
    >>> act_on_tokens(tokens, D4(torch.tensor([2]), torch.tensor([False])), grid=(2, 2)).flatten().tolist()
    [4, 3, 2, 1]
    """
    check.tensor("y", y, None, None, None, floating=False)
    check.grid(grid=grid)
    _, t, d = y.shape
    if t != grid[0] * grid[1]:
        raise ValueError(f"a grid of {grid[0]} x {grid[1]} has {grid[0] * grid[1]} tokens, got {t}")
    places = _places(g, y, grid=grid)
    return y.gather(1, places[:, :, None].expand(-1, -1, d))


def grid_after(g: D4, grid: Grid) -> Grid:
    return grid if grid[0] == grid[1] or not g.odd else (grid[1], grid[0])


def _places(g: D4, x: Shaped[Tensor, "n ..."], *, grid: Grid) -> Int64[Tensor, "n t"]:
    if len(g) != len(x):
        raise ValueError(f"one element for each of {len(x)} samples, got {len(g)}")
    grid_after(g, grid)  # raises if the grid cannot take these elements
    return table(*grid, like=x)[g.number_on(x.device)]


@kept_on_device
def table(h: int, w: int, *, device: torch.device) -> Int64[Tensor, "8 t"]:
    """The place in x of each place in g x, for the eight elements in the order of `D4.every()`."""
    place = torch.arange(h * w, device=device).view(h, w)
    return torch.stack([torch.rot90(p, k).flatten() for p in (place, place.flip(1)) for k in range(4)])
