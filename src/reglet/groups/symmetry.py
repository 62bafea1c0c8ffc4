"""The transforms of SER on images, and on their token maps.

    A = R^k S F^f            S resizes to a grid of whole patches
    A_2 A_1^-1 = S' D,       D = (R^k2 F^f2) (R^k1 F^f1)^-1 in D4,  S' the resize to the grid of view 2

This holds because a separable resize commutes with D4 if height and width change places at odd turns.  So all factors
in D4 can be collected, and the two resizes become one.  D is R^(k2 - k1) if f1 = f2, and R^(k2 + k1) F otherwise.

The authors' code draws one grid and one k for each rank and view.  It draws a half turn and a flip for each sample of
view 1, and view 2 gets the opposite.  The relative element is then always a reflection, the same for the whole batch.
Here everything is drawn independently; `complement=True` draws as the code does.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.groups.action import Grid, act, act_on_tokens, grid_after
from reglet.groups.d4 import D4
from reglet.groups.resize import resize, resize_tokens


@dataclass(frozen=True, eq=False)
class Element:
    """The transform of one view of n images.  grid: of S, in patches, before the turn.

    >>> half = Element(D4(torch.tensor([1]), torch.tensor([False])), grid=(2, 4))  # a quarter turn of 2 x 4 patches
    >>> half.shape
    (4, 2)
    """

    d4: D4
    grid: Grid

    @property
    def shape(self) -> Grid:
        """The grid of the view."""
        return grid_after(self.d4, self.grid)


def transform(x: Float[Tensor, "n c h w"], element: Element, *, patch: int) -> Float[Tensor, "n c h2 w2"]:
    """A x, which consists of whole patches, by at most one resize and one gather.

    >>> element = Element(D4(torch.tensor([1]), torch.tensor([False])), grid=(2, 4))
    >>> transform(torch.rand(1, 3, 8, 16), element, patch=4).shape
    torch.Size([1, 3, 16, 8])
    """
    h, w = element.grid
    return act(resize(x, (h * patch, w * patch)), element.d4)


def relative(first: Element, second: Element) -> D4:
    """D of A_2 A_1^-1.

    >>> turned, plain = (Element(D4(torch.tensor([k]), torch.tensor([False])), grid=(4, 4)) for k in (1, 0))
    >>> relative(turned, plain).turn.item()  # three quarter turns lead back
    3
    """
    return second.d4 @ first.d4.inverse()


def align(y: Float[Tensor, "n t d"], d4: D4, *, grid: Grid, to: Grid) -> Float[Tensor, "n t2 d"]:
    """Tokens of view 1 on `grid`, moved to their places in view 2 on the grid `to`, by one gather and one resize.

    >>> d4 = D4(torch.tensor([0]), torch.tensor([False]))
    >>> align(torch.randn(1, 16, 8), d4, grid=(4, 4), to=(6, 6)).shape
    torch.Size([1, 36, 8])
    """
    return resize_tokens(act_on_tokens(y, d4, grid=grid), grid=grid_after(d4, grid), to=to)


@dataclass(frozen=True)
class Symmetry:
    """Draws quarter turns, flips, and grids whose area is a share of `grid` and whose aspect is in `ratio`.

    turns, flips: whether there are any.  area: None for no resize.  grid: of the given images.
    complement: draw pairs as the authors' code does.

    All images of a batch have the same grid.  Unless it is square, all turn by an odd or all by an even number of
    quarters.  Within that, each image has its own turn and flip.

    >>> group = Symmetry(grid=(8, 8), patch=4)
    >>> e = group.draw(3, torch.Generator().manual_seed(0))
    >>> group.apply(torch.zeros(3, 3, 32, 32), e).shape[2:] == tuple(4 * side for side in e.shape)
    True
    """

    turns: bool = True
    flips: bool = True
    area: tuple[float, float] | None = (0.7, 1.3)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    complement: bool = False
    grid: Grid = (14, 14)
    patch: int = 16

    def __post_init__(self) -> None:
        check.flag(turns=self.turns, flips=self.flips, complement=self.complement)
        if self.area is not None:
            check.interval("area", self.area)
        check.interval("ratio", self.ratio)
        check.grid(grid=self.grid)
        check.whole(1, patch=self.patch)

    def fitted(self, size: Grid, *, patch: int) -> "Symmetry":
        """The same for images of `size` pixels, cut into patches."""
        if size[0] % patch or size[1] % patch:
            raise ValueError(f"images of {size[0]} x {size[1]} are not made of patches of {patch} x {patch}")
        return replace(self, grid=(size[0] // patch, size[1] // patch), patch=patch)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Element:
        check.whole(1, n=n)
        u = torch.rand(2, n, generator=generator, device="cpu")
        k, grid = int(torch.randint(4, (), generator=generator, device="cpu")), self._grid(generator)
        turn = (4 * u[0]).long().clamp(max=3)
        if self.area is not None or grid[0] != grid[1]:
            turn = (k + 2 * (turn // 2)) % 4
        return Element(D4(turn * self.turns, (u[1] < 0.5) & self.flips), grid)

    def draw_pair(self, n: int, generator: torch.Generator | None = None) -> tuple[Element, Element]:
        """Two views of the same images."""
        first, second = self.draw(n, generator), self.draw(n, generator)
        if not self.complement:
            return first, second
        k0, k1 = (int(k) for k in torch.randint(4, (2,), generator=generator, device="cpu"))
        half, flip = first.d4.turn // 2, first.d4.flip
        turns = (k0 + 2 * half) % 4 * self.turns, (k1 + 2 * (1 - half)) % 4 * self.turns
        flips = flip, ~flip & self.flips
        one, two = (D4(turn, flip) for turn, flip in zip(turns, flips, strict=True))
        return Element(one, first.grid), Element(two, second.grid)

    def apply(self, x: Float[Tensor, "n c h w"], p: Element) -> Float[Tensor, "n c h2 w2"]:
        return transform(x, p, patch=self.patch)

    def _grid(self, generator: torch.Generator | None) -> Grid:
        """w = round(sqrt(area a)), h = round(sqrt(area / a)), with a log-uniform."""
        h, w = self.grid
        a, b = torch.rand(2, generator=generator, device="cpu").tolist()
        if self.area is None:
            return self.grid
        scale = self.area[0] + (self.area[1] - self.area[0]) * a
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        aspect = math.exp(low + (high - low) * b)
        return max(1, round(h * math.sqrt(scale / aspect))), max(1, round(w * math.sqrt(scale * aspect)))
