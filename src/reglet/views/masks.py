"""Blocks of patches: which patches of an image are seen, and which are predicted.

I-JEPA.  Assran et al., CVPR 2023, arXiv:2301.08243:

    targets   4 blocks of 0.15 to 0.2 of the image, aspect ratio 0.75 to 1.5; they may overlap
    context   1 block of 0.85 to 1.0 of the image, square, without the patches of the targets

As in the authors' code, blocks have one size for all images of a batch, and each image has its own places.  Every image
shows as many patches as the image that shows fewest, so that a batch is one tensor.  Three things follow the paper and
not the code: scale and aspect ratio are drawn separately; blocks reach the last row and column; and the patches that
are dropped are random, where the code drops the last ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reglet import check
from reglet.views.crop import Crops, Side
from reglet.views.draw import Draw
from reglet.views.multiview import Policy
from reglet.views.view import Run

TRIES = 20  # times that the targets of an image are drawn again if they leave too little to see


@dataclass(frozen=True)
class Masks:
    """Patches of n images by their numbers, counted row by row, in ascending order.

    context: the patches that are seen.  targets: the patches that are predicted, for each of m blocks.

    >>> masks = Masks(torch.tensor([[0, 1, 4, 5]]), torch.tensor([[[10, 11, 14, 15]]]))
    >>> len(masks), masks.take(slice(0, 1)).targets.shape
    (1, torch.Size([1, 1, 4]))
    """

    context: Int64[Tensor, "n k"]
    targets: Int64[Tensor, "n m s"]

    def __len__(self) -> int:
        return len(self.context)

    def take(self, index: slice | Int64[Tensor, " b"]) -> "Masks":
        """The masks of some of the images."""
        return Masks(self.context[index], self.targets[index])


@dataclass(frozen=True)
class BlockMasks:
    """I-JEPA's masks on a grid of patches.

    grid: rows and columns of patches.
    targets: number of blocks that are predicted.
    target_scale, context_scale: smallest and largest share of the image.  target_aspect: the same of height / width.
    least: the fewest patches that an image may show.  The authors have 10 for a grid of 16 x 16.

    >>> masks = BlockMasks((8, 8)).draw(4, torch.Generator().manual_seed(0))
    >>> masks.targets.shape[:2], bool(torch.isin(masks.context[0], masks.targets[0]).any())
    (torch.Size([4, 4]), False)
    """

    grid: tuple[int, int]
    targets: int = 4
    target_scale: tuple[float, float] = (0.15, 0.2)
    target_aspect: tuple[float, float] = (0.75, 1.5)
    context_scale: tuple[float, float] = (0.85, 1.0)
    least: int = 4

    def __post_init__(self) -> None:
        check.grid(grid=self.grid)
        check.whole(1, targets=self.targets, least=self.least)
        check.interval("target_scale", self.target_scale, high=1.0)
        check.interval("target_aspect", self.target_aspect)
        check.interval("context_scale", self.context_scale, high=1.0)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Masks:
        """The masks of n images, a function of the generator."""
        check.whole(1, n=n)
        u = torch.rand(3, generator=generator)
        target = self._sides(_between(self.target_scale, u[0]), _between(self.target_aspect, u[1]))
        context = self._sides(_between(self.context_scale, u[2]), 1.0)
        places = self._blocks(n * self.targets, target, generator).unflatten(0, (n, self.targets))
        room = self._blocks(n, context, generator)
        for _ in range(TRIES):
            few = (room & ~places.any(1)).sum(1) < self.least
            if not bool(few.any()):
                break
            again = int(few.sum())
            places[few] = self._blocks(again * self.targets, target, generator).unflatten(0, (again, self.targets))
            room[few] = self._blocks(again, context, generator)
        seen = room & ~places.any(1)
        if int(seen.sum(1).min()) < self.least:
            raise ValueError(
                f"{self.targets} blocks of {target[0]} x {target[1]} patches leave fewer than {self.least} patches of "
                f"a grid of {self.grid[0]} x {self.grid[1]}: take smaller patches, fewer or smaller targets, or least="
            )
        return Masks(_some(seen, generator), places.flatten(0, 1).nonzero()[:, 1].view(n, self.targets, -1))

    def _sides(self, scale: float, aspect: float) -> tuple[int, int]:
        """Height and width of a block, in patches."""
        area = scale * self.grid[0] * self.grid[1]
        sides = math.sqrt(area * aspect), math.sqrt(area / aspect)
        height, width = (min(most, max(1, round(side))) for side, most in zip(sides, self.grid, strict=True))
        return height, width

    def _blocks(self, count: int, sides: tuple[int, int], generator: torch.Generator | None) -> Bool[Tensor, "count t"]:
        """The patches of `count` blocks of one size, each at its own random place."""
        rows, columns = (_stretch(count, side, most, generator) for side, most in zip(sides, self.grid, strict=True))
        return (rows[:, :, None] & columns[:, None, :]).flatten(1)


def _between(ends: tuple[float, float], u: Tensor) -> float:
    return ends[0] + (ends[1] - ends[0]) * float(u)


def _stretch(count: int, side: int, most: int, generator: torch.Generator | None) -> Bool[Tensor, "count most"]:
    first = torch.randint(most - side + 1, (count, 1), generator=generator)
    place = torch.arange(most)
    return (place >= first) & (place < first + side)


def _some(seen: Bool[Tensor, "n t"], generator: torch.Generator | None) -> Int64[Tensor, "n k"]:
    """Random patches among those seen: as many for each image as the image with the fewest has."""
    order = torch.rand(seen.shape, generator=generator).masked_fill(~seen, 2.0).argsort(1)
    return order[:, : int(seen.sum(1).min())].sort(1).values


@dataclass(frozen=True)
class MaskedDraw:
    """The draw of one view, and its masks.

    >>> from reglet.views import BlockMasks, MaskedViews, policy
    >>> (draw,) = MaskedViews(policy("plain", size=32), BlockMasks((8, 8))).draw(4)
    >>> len(draw), len(draw.take(slice(0, 2)).masks)
    (4, 2)
    """

    view: Draw
    masks: Masks

    def __len__(self) -> int:
        return len(self.masks)

    def take(self, index: slice | Int64[Tensor, " b"]) -> "MaskedDraw":
        return MaskedDraw(self.view.take(index), self.masks.take(index))


@dataclass(frozen=True)
class MaskedViews:
    """`policy`, with masks drawn for each of its views.

    >>> from reglet.views import BlockMasks, MaskedViews, policy
    >>> masked = MaskedViews(policy("plain", size=32), BlockMasks((8, 8)))
    >>> draws = masked.draw(4, torch.Generator().manual_seed(0))
    >>> masked.apply(torch.rand(4, 3, 40, 40), draws)[0].shape, draws[0].masks.targets.shape[:2]
    (torch.Size([4, 3, 32, 32]), torch.Size([4, 4]))
    """

    policy: Policy
    masks: BlockMasks

    @property
    def n_global(self) -> int:
        return self.policy.n_global

    @property
    def size(self) -> int:
        return self.policy.size

    def draw(
        self, n: int, generator: torch.Generator | None = None, *, aspect: Float[Tensor, " n"] | None = None
    ) -> list[MaskedDraw]:
        views = self.policy.draw(n, generator, aspect=aspect)
        return [MaskedDraw(view, self.masks.draw(n, generator)) for view in views]

    def apply(self, images: Tensor, draws: Sequence[MaskedDraw]) -> list[Tensor]:
        """The whole views.  The method hides the masked patches."""
        return self.policy.apply(images, [draw.view for draw in draws])

    @property
    def crops_whole_images(self) -> bool:
        return self.policy.crops_whole_images

    def crops(self, draws: Sequence[MaskedDraw], *, height: Side, width: Side) -> list[Crops]:
        return self.policy.crops([draw.view for draw in draws], height=height, width=width)

    def finish(self, crops: Sequence[Tensor], draws: Sequence[MaskedDraw], *, run: Run = map) -> list[Tensor]:
        return self.policy.finish(crops, [draw.view for draw in draws], run=run)
