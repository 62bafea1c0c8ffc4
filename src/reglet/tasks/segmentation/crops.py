"""Squares of an image: drawn for training, laid over the whole of it for testing."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from reglet.tasks.segmentation.data import IGNORE


def draw(
    images: Sequence[UInt8[Tensor, "c _ _"]],
    masks: Sequence[UInt8[Tensor, "_ _"]],
    *,
    side: int,
    generator: torch.Generator,
) -> tuple[UInt8[Tensor, "n c s s"], UInt8[Tensor, "n s s"]]:
    """One square of every image, around a pixel that counts as far as the border allows, half of them mirrored."""
    crops = [_one(image, mask, side, generator) for image, mask in zip(images, masks, strict=True)]
    x, y = zip(*crops, strict=True)
    return torch.stack(x), torch.stack(y)


def _one(image: Tensor, mask: Tensor, side: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    h, w = mask.shape
    counted = (mask != IGNORE).flatten().nonzero().flatten()
    at = int(counted[torch.randint(len(counted), (), generator=generator)])
    top = min(max(at // w - side // 2, 0), h - side)
    left = min(max(at % w - side // 2, 0), w - side)
    cut = (..., slice(top, top + side), slice(left, left + side))
    if torch.rand((), generator=generator) < 0.5:
        return image[cut].flip(-1), mask[cut].flip(-1)
    return image[cut], mask[cut]


def starts(length: int, side: int) -> list[int]:
    """Where squares begin that cover `length` evenly, each overlapping the next by a quarter or more.

    >>> starts(256, 64), starts(64, 64)
    ([0, 48, 96, 144, 192], [0])
    """
    if length < side:
        raise ValueError(f"a square of {side} does not fit into {length}")
    count = 1 + -(-(length - side) // max(1, 3 * side // 4))
    return [round(i * (length - side) / max(1, count - 1)) for i in range(count)]


def over_squares(
    network: Callable[[Tensor], Tensor], x: Float[Tensor, "c h w"], *, side: int, batch: int = 32
) -> Float[Tensor, "classes h w"]:
    """Logits of an image of any size, averaged where squares overlap: the network sees what it was trained on."""
    h, w = x.shape[1:]
    places = [(top, left) for top in starts(h, side) for left in starts(w, side)]
    squares = torch.stack([x[:, top : top + side, left : left + side] for top, left in places])
    logits = torch.cat([network(some) for some in squares.split(batch)])
    total, count = x.new_zeros(logits.shape[1], h, w), x.new_zeros(h, w)
    for (top, left), values in zip(places, logits, strict=True):
        total[:, top : top + side, left : left + side] += values
        count[top : top + side, left : left + side] += 1
    return total / count
