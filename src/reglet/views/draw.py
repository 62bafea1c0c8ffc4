"""The random numbers of one view, as data: they can be kept with the batch, replayed, predicted and inverted."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reglet.moves import moved


@dataclass(frozen=True)
class Draw:
    """The draw of one view of n images.  An operation that does not happen holds its identity.

    crop: (y, x, height, width) from 0 to 1, so that a draw fits images of any size.  Sides are shares of the image, and
        positions are shares of the possible positions.  `View.boxes` gives the pixels (i, j, h, w).
    angle: degrees, turn: quarter turns; both counter-clockwise.
    factors: brightness, contrast, saturation (1: unchanged) and hue (0: unchanged), applied in the order of `order`,
        a permutation of these four.  Where `jitter` is False they are drawn but not applied.
    sigma: of the blur, in pixels of the view; 0: none.

    >>> from reglet.views import View
    >>> draw = View(32, flip=0.5).draw(8)
    >>> len(draw.flip), len(draw.take(slice(0, 2)).flip)
    (8, 2)
    """

    crop: Float[Tensor, "n 4"]
    flip: Bool[Tensor, " n"]
    angle: Float[Tensor, " n"]
    turn: Int64[Tensor, " n"]
    jitter: Bool[Tensor, " n"]
    factors: Float[Tensor, "n 4"]
    order: Int64[Tensor, "n 4"]
    gray: Bool[Tensor, " n"]
    sigma: Float[Tensor, " n"]
    solarize: Bool[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.flip)

    def take(self, index: slice | Int64[Tensor, " m"]) -> "Draw":
        """The draw of some of the images, such as a rank's part of the batch or a micro-batch."""
        return Draw(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def to(self, device: torch.device | str) -> "Draw":
        names = [field.name for field in fields(self)]
        there = moved([getattr(self, name) for name in names], torch.device(device))
        return Draw(**dict(zip(names, there, strict=True)))


def share_geometry(draws: Sequence[Draw]) -> list[Draw]:
    """All views get the crop, flip and rotation of the first.  Each keeps its own colours.

    >>> from reglet.views import View
    >>> view = View(32, flip=0.5)
    >>> first, second = share_geometry([view.draw(8), view.draw(8)])
    >>> torch.equal(first.flip, second.flip)
    True
    """
    first = draws[0]
    return [replace(d, crop=first.crop, flip=first.flip, angle=first.angle, turn=first.turn) for d in draws]
