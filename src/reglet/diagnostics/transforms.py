"""What is done to an image, and what it does to a map of that image: rho_g on pixels and on tokens.

Quarter turns and flips are exact.  A resize is no group action, since it loses detail, and a shift loses what leaves
the frame; both are approximations on maps, and a score below 1 may be theirs.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.groups import D4, act, resize

Map = Float[Tensor, "n d h w"]


class ImageTransform(NamedTuple):
    """image: g x.   tokens: rho_g y for the map y of x, on the grid of the second argument, the map of g x.

    inside: the part of the grid to compare, as slices of rows and columns.
    """

    image: Callable[[Tensor], Tensor]
    tokens: Callable[[Tensor, Tensor], Tensor]
    inside: Callable[[int, int], tuple[slice, slice]] = lambda h, w: (slice(None), slice(None))


def rotation(turns: int) -> ImageTransform:
    """Quarter turns, counter-clockwise."""
    return _symmetry(turns, mirrored=False)


def flip() -> ImageTransform:
    """Left to right."""
    return _symmetry(0, mirrored=True)


def _symmetry(turns: int, *, mirrored: bool) -> ImageTransform:
    """One element of D4, on images and on maps alike."""

    def move(x: Map) -> Map:
        n = len(x)
        return act(x, D4(torch.full((n,), turns % 4, device="cpu"), torch.full((n,), mirrored, device="cpu")))

    return ImageTransform(move, lambda y, _: move(y))


def scale(factor: float, *, multiple: int = 1) -> ImageTransform:
    """Bicubic, without antialiasing, as in SER.  `multiple`: of which sides stay, such as a ViT's patch."""

    def image(x: Tensor) -> Tensor:
        h, w = (max(multiple, round(side * factor / multiple) * multiple) for side in x.shape[2:])
        return resize(x, (h, w))

    def tokens(y: Tensor, like: Tensor) -> Tensor:
        return resize(y, (like.shape[2], like.shape[3]))

    return ImageTransform(image, tokens)


def translation(share: float) -> ImageTransform:
    """To the right and down by a share of each side.  What enters is what left on the other side, and is not compared.

    Pixels are moved by whole numbers, maps by fractions of a cell where need be (linear interpolation).
    """
    if not 0 < share < 1:
        raise ValueError(f"a translation is by a share between 0 and 1 of the side, got {share}")

    def image(x: Map) -> Map:
        return x.roll((round(x.shape[2] * share), round(x.shape[3] * share)), (2, 3))

    def tokens(y: Tensor, _: Tensor) -> Tensor:
        return _shift(_shift(y, y.shape[2] * share, 2), y.shape[3] * share, 3)

    def inside(h: int, w: int) -> tuple[slice, slice]:
        return slice(-(-round(h * share * 1e6) // 10**6), None), slice(-(-round(w * share * 1e6) // 10**6), None)

    return ImageTransform(image, tokens, inside)


def _shift(y: Map, cells: float, dim: int) -> Map:
    whole = int(cells)
    moved = y.roll(whole, dim)
    return moved if cells == whole else torch.lerp(moved, y.roll(whole + 1, dim), cells - whole)


ROTATIONS = {"rot90": rotation(1), "rot180": rotation(2), "rot270": rotation(3)}
FLIP = {"flip": flip()}
