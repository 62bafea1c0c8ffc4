"""One view of an image.  Its random numbers are drawn first, and applied later."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reglet import check, huge_pages
from reglet.moves import moved
from reglet.views.blur import Blur, blurred
from reglet.views.color import (
    ColorJitter,
    Normalize,
    Steps,
    jitter_,
    jitter_order,
    rgb_to_grayscale,
    solarize,
    steps_of,
)
from reglet.views.crop import Crops, PadCrop, ResizedCrop, Side
from reglet.views.draw import Draw
from reglet.views.orientation import rotate

Rows = Int64[Tensor, " _"]
Run = Callable[[Callable[["Plan"], None], Iterable["Plan"]], Iterable[None]]  # as `map`
_CACHED = 1 << 20  # floats that are worked on at a time, so that they stay in a CPU's cache
_LARGE = 1 << 13  # numbers of an image that a CPU copies alone sooner than by `index_copy_`, three times at 224 px


@dataclass(frozen=True)
class View:
    """Crop, flip, rotation, jitter, grey, blur, solarization, normalisation, in this order.

    Pixels stay floats, so nothing is rounded between the operations.

    size: side of the view, in pixels.  flip, gray, solarize: probabilities.  rotate: largest angle, in degrees.
    turns: turn by a random number of quarters.

    >>> view = View(32, flip=0.5, jitter=ColorJitter())
    >>> draw = view.draw(8, torch.Generator().manual_seed(0))
    >>> view.apply(torch.zeros(8, 3, 40, 40, dtype=torch.uint8), draw).shape
    torch.Size([8, 3, 32, 32])
    """

    size: int
    crop: ResizedCrop | PadCrop = field(default_factory=ResizedCrop)
    flip: float = 0.0
    rotate: float = 0.0
    turns: bool = False
    jitter: ColorJitter | None = None
    gray: float = 0.0
    blur: Blur | None = None
    solarize: float = 0.0
    normalize: Normalize | None = field(default_factory=Normalize)

    def __post_init__(self) -> None:
        check.whole(1, size=self.size)
        check.flag(turns=self.turns)
        check.probability(flip=self.flip, gray=self.gray, solarize=self.solarize)
        check.between(0, 180, rotate=self.rotate)
        if self.blur is not None and self.blur.kernel // 2 >= self.size:
            kernel = self.blur.kernel
            raise ValueError(f"a blur of {kernel} px needs views of at least {kernel // 2 + 1} px, got {self.size}")

    def draw(
        self, n: int, generator: torch.Generator | None = None, *, aspect: Float[Tensor, " n"] | None = None
    ) -> Draw:
        """aspect: width / height of each image; None: all are square."""
        check.whole(0, n=n)
        device = generator.device if generator is not None else torch.device("cpu")
        crop = self.crop.draw(n, generator, aspect=aspect)
        u = torch.rand(5, n, generator=generator, dtype=torch.float32, device=device)
        jitter, factors, order = (self.jitter or ColorJitter(0.0, 0.0, 0.0, 0.0, p=0.0)).draw(n, generator)
        return Draw(
            crop=crop,
            flip=u[0] < self.flip,
            angle=(2 * u[1] - 1) * self.rotate,
            turn=(4 * u[2]).long().clamp(max=3) * self.turns,
            jitter=jitter,
            factors=factors,
            order=order,
            gray=u[3] < self.gray,
            sigma=(self.blur or Blur(1, p=0.0)).draw(n, generator),
            solarize=u[4] < self.solarize,
        )

    def boxes(self, draw: Draw, *, height: Side, width: Side) -> Int64[Tensor, "n 4"]:
        """The crops (i, j, h, w) in pixels of images of height x width."""
        return self.crop.boxes(draw.crop, height=height, width=width, size=self.size)

    @property
    def crops_whole_images(self) -> bool:
        """Whether the source can make the crop while it reads images of many sizes.  It cannot make a padded crop."""
        return isinstance(self.crop, ResizedCrop)

    def crops(self, draw: Draw, *, height: Side, width: Side) -> Crops:
        """The crops that the source of the images should make.  `finish` does the rest."""
        assert isinstance(self.crop, ResizedCrop)
        return Crops(self.boxes(draw, height=height, width=width), self.size, self.crop.interpolation)

    def apply(self, images: Tensor, draw: Draw) -> Float[Tensor, "n c size size"]:
        """The view of uint8 images, or of floating-point ones in [0, 1].  The same draw gives the same view."""
        check.images(images, floating=False)
        height, width = images.shape[2:]

        def crop(x: Tensor, plan: Plan) -> Tensor:
            return self.crop.cut(x, plan.boxes, plan.flip, size=self.size)

        return self._in_parts(images, draw, crop, lambda d: self.boxes(d, height=height, width=width))

    def finish(self, crops: Tensor, draw: Draw, *, run: Run = map) -> Float[Tensor, "n c size size"]:
        """The view of images that the source has cropped and resized as `crops` asks.

        run: `map`, or the `map` of a pool of threads; the result is the same to the bit.
        """
        check.images(crops, floating=False)
        if crops.shape[2:] != (self.size, self.size):
            raise ValueError(f"crops are {self.size} x {self.size} pixels, got shape {tuple(crops.shape)}")

        def crop(x: Tensor, plan: Plan) -> Tensor:
            return _unit(_some(x, plan.flipped, lambda part: part.flip(3)))  # bytes are moved sooner than floats

        return self._in_parts(crops, draw, crop, lambda d: d.turn.new_zeros(len(d), 4), run)

    def _in_parts(
        self,
        images: Tensor,
        draw: Draw,
        crop: Callable[[Tensor, "Plan"], Tensor],
        boxes: Callable[[Draw], Int64[Tensor, "n 4"]],
        run: Run = map,
    ) -> Tensor:
        check.one_each(images, draw=draw.flip)
        n, c = images.shape[:2]
        step = max(1, _CACHED // (c * self.size**2)) if images.device.type == "cpu" else max(1, n)
        out = huge_pages.empty(n, c, self.size, self.size, dtype=torch.float32, device=images.device)
        order = jitter_order(draw.order, draw.jitter)
        plans = []
        for rows in order.split(step):  # here and not in `make`: small operations would make its threads wait in turn
            some = draw.take(rows)
            plans.append(Plan.of(some, boxes(some), rows).to(images.device))

        def make(plan: Plan) -> None:
            with torch.no_grad(), torch.autocast(images.device.type, enabled=False):  # each thread has its own modes
                x = self._after_crop(crop(images.index_select(0, plan.rows), plan), plan)
                _put(out, plan.rows, x if self.normalize is None else self.normalize.into(x, x))

        list(run(make, plans))
        return out

    def _after_crop(self, x: Tensor, plan: "Plan") -> Tensor:
        x = _some(x, plan.rotated, lambda part: rotate(part, plan.angle))
        for turns, rows in enumerate(plan.turned, start=1):
            x = _some(x, rows, lambda part, k=turns: torch.rot90(part, k, dims=(2, 3)))  # type: ignore[misc]
        if len(plan.jitter.rows):
            x = jitter_(x, plan.jitter)
        if x.shape[1] == 3:
            x = _some(x, plan.gray, lambda part: rgb_to_grayscale(part).expand_as(part))
        if self.blur is not None:
            kernel = self.blur.kernel
            x = _some(x, plan.blurred, lambda part: blurred(part, plan.sigma, kernel=kernel))
        return _some(x, plan.solarized, solarize)


class Plan(NamedTuple):
    """For each operation of a draw, the numbers of the images that it changes, and its values.

    rows: the place of each image in the batch.

    It is made on the host and sent to the device in one copy.  Asking a GPU which images were chosen would mean waiting
    for all of its work.
    """

    rows: Rows
    boxes: Int64[Tensor, "n 4"]
    flip: Bool[Tensor, " n"]
    flipped: Rows
    rotated: Rows
    angle: Float[Tensor, " a"]
    turned: tuple[Rows, Rows, Rows]  # by one, two and three quarters
    jitter: Steps
    gray: Rows
    blurred: Rows
    sigma: Float[Tensor, " b"]
    solarized: Rows

    @staticmethod
    def of(draw: Draw, boxes: Int64[Tensor, "n 4"], rows: Rows) -> "Plan":
        rotated, blurs = _rows(draw.angle != 0), _rows(draw.sigma > 0)
        return Plan(
            rows,
            boxes,
            draw.flip,
            _rows(draw.flip),
            rotated,
            draw.angle[rotated],
            (_rows(draw.turn % 4 == 1), _rows(draw.turn % 4 == 2), _rows(draw.turn % 4 == 3)),
            steps_of(draw.factors, draw.order, draw.jitter),
            _rows(draw.gray),
            blurs,
            draw.sigma[blurs],
            _rows(draw.solarize),
        )

    def to(self, device: torch.device) -> "Plan":
        j = self.jitter
        once = [self.boxes, self.flip, self.flipped, self.rotated, self.angle, self.gray, self.blurred, self.sigma]
        there = moved([*once, self.solarized, *self.turned, j.rows, j.steps, j.amounts, j.hue, self.rows], device)
        boxes, flip, flipped, rotated, angle, gray, blurs, sigma, solarized, *there = there
        one, two, three, jittered, steps, amounts, hue, rows = there
        jitter = j._replace(rows=jittered, steps=steps, amounts=amounts, hue=hue)
        turned = one, two, three
        return Plan(rows, boxes, flip, flipped, rotated, angle, turned, jitter, gray, blurs, sigma, solarized)


def _rows(mask: Tensor) -> Rows:
    return mask.nonzero()[:, 0]


def _unit(x: Tensor) -> Tensor:
    """A copy in float32, in [0, 1]."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x.to(torch.float32, copy=True)


def _some(x: Tensor, rows: Rows, change: Callable[[Tensor], Tensor]) -> Tensor:
    """x with the images `rows` changed."""
    return _put(x, rows, change(x.index_select(0, rows))) if len(rows) else x


def _put(x: Tensor, rows: Rows, part: Tensor) -> Tensor:
    """x with `part` at `rows`, in place."""
    if x.device.type != "cpu" or part[0].numel() < _LARGE:
        return x.index_copy_(0, rows, part)
    for row, image in zip(rows.tolist(), part, strict=True):
        x[row] = image
    return x
