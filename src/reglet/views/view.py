"""One view: what may happen to an image, drawn first and applied after."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reglet.views import check
from reglet.views.blur import Blur, gaussian_blur
from reglet.views.color import ColorJitter, jitter_, rgb_to_grayscale, solarize
from reglet.views.crop import PadCrop, ResizedCrop
from reglet.views.draw import Draw
from reglet.views.normalize import Normalize
from reglet.views.rotate import quarter_turn, rotate

_CACHED = 1 << 20  # floats of a view that are worked on at a time: on a CPU they should stay in its cache


@dataclass(frozen=True)
class View:
    """Crop, flip, rotation, jitter, grey, blur, solarization, normalisation, in this order.

    Pixels are kept as floats throughout, so nothing is rounded between the operations.

    size: of the view, in pixels.  flip, gray, solarize: probabilities.  rotate: largest angle, in degrees.
    turns: a random number of quarter turns.

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
        if self.size < 1:
            raise ValueError(f"size is a positive number of pixels, got {self.size}")
        check.probability(flip=self.flip, gray=self.gray, solarize=self.solarize)
        if not 0 <= self.rotate <= 180:
            raise ValueError(f"rotate is an angle from 0 to 180 degrees, got {self.rotate}")
        if self.blur is not None and self.blur.kernel // 2 >= self.size:
            kernel = self.blur.kernel
            raise ValueError(f"a blur of {kernel} px needs views of at least {kernel // 2 + 1} px, got {self.size}")

    def draw(self, n: int, generator: torch.Generator | None = None) -> Draw:
        device = generator.device if generator is not None else torch.device("cpu")
        crop = self.crop.draw(n, generator)
        u = torch.rand(5, n, generator=generator, device=device)
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

    def boxes(self, draw: Draw, *, height: int, width: int) -> Int64[Tensor, "n 4"]:
        """The crops (i, j, h, w) in pixels of images of height x width."""
        return self.crop.boxes(draw.crop, height=height, width=width, size=self.size)

    @torch.no_grad()
    def apply(self, images: Tensor, draw: Draw) -> Float[Tensor, "n c size size"]:
        """uint8 images, or floating-point ones in [0, 1]: the same draw gives the same view."""
        check.images(images)
        check.one_each(images, draw=draw.flip)
        n, c = images.shape[:2]
        step = max(1, _CACHED // (c * self.size**2)) if images.device.type == "cpu" else max(1, n)
        out = torch.empty(n, c, self.size, self.size, device=images.device)
        with torch.autocast(images.device.type, enabled=False):
            for start in range(0, n, step):
                part = slice(start, start + step)
                x = self._apply(images[part], draw.take(part))
                _ = out[part].copy_(x) if self.normalize is None else self.normalize.into(out[part], x)
        return out

    def _apply(self, images: Tensor, draw: Draw) -> Tensor:
        x = self.crop.apply(images, draw.crop, draw.flip, size=self.size)
        x = _some(x, draw.angle != 0, lambda part, on: rotate(part, draw.angle[on]))
        x = _some(x, draw.turn != 0, lambda part, on: quarter_turn(part, draw.turn[on]))
        if bool(draw.jitter.any()):
            x = jitter_(x, draw.factors, draw.order, draw.jitter)
        x = _some(x, draw.gray, lambda part, on: rgb_to_grayscale(part).expand_as(part))
        if self.blur is not None:
            kernel = self.blur.kernel
            x = _some(x, draw.sigma > 0, lambda part, on: gaussian_blur(part, draw.sigma[on], kernel=kernel))
        return _some(x, draw.solarize, lambda part, on: solarize(part))


def _some(x: Tensor, mask: Tensor, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """x with the images of `mask` changed.

    Their indices are found where the draw is, usually the CPU, so that a GPU need not be waited for.
    """
    on = mask.nonzero()[:, 0]
    if len(on) == 0:
        return x
    rows = on.to(x.device)
    return x.index_copy_(0, rows, change(x.index_select(0, rows), on))
