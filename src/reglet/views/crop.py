"""A box of each image, resized to one size."""

import math
from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reglet import check
from reglet.views.orientation import hflip
from reglet.views.resample import Interpolation, matrices

_TRIES = 10  # as torchvision
_MIDDLE = 0.4999  # rounds to the middle position; of two middle ones, to the upper left


Side = int | Int64[Tensor, " n"]  # one for all images, or one for each


class Crops(NamedTuple):
    """What a view asks of each image: a box (i, j, h, w) in its pixels, resized to size x size.

    exact: decode files whole and resize them by Pillow, as other libraries do for evaluation.  It is slower.

    >>> Crops(torch.tensor([[0, 0, 20, 30]]), size=32).size
    32
    """

    boxes: Int64[Tensor, "n 4"]
    size: int
    interpolation: Interpolation = "bilinear"
    exact: bool = False


def resized_crop(
    x: Tensor,
    boxes: Int64[Tensor, "n 4"],
    *,
    size: int,
    interpolation: Interpolation = "bilinear",
    flip: Bool[Tensor, " n"] | None = None,
) -> Float[Tensor, "n c size size"]:
    """The box (i, j, h, w) of each image, resized with antialiasing, as float; uint8 becomes [0, 1].

    Equals torchvision's `resized_crop(antialias=True)` on floats, up to rounding.  On uint8 torchvision rounds to 1/255
    and clips the overshoot of a cubic; here nothing is rounded or clipped.

    >>> x = torch.arange(16.0).view(1, 1, 4, 4)
    >>> resized_crop(x, torch.tensor([[0, 2, 2, 2]]), size=2).squeeze().tolist()
    [[2.0, 3.0], [6.0, 7.0]]
    """
    check.images(x, floating=False)
    check.one_each(x, boxes=boxes)
    check.whole(1, size=size)
    check.choice("interpolation", interpolation, get_args(Interpolation))
    height, width = x.shape[2:]
    limit = torch.tensor([height, width], device=boxes.device)
    outside = ((boxes[:, :2] < 0) | (boxes[:, 2:] < 1) | (boxes[:, :2] + boxes[:, 2:] > limit)).any(1)
    if bool(outside.any()):
        box = boxes[outside][0].tolist()
        raise ValueError(f"a box (i, j, h, w) lies outside the images of {height} x {width}: {box}")
    return _resize(x, boxes.to(x.device), size, interpolation, None if flip is None else flip.to(x.device))


def _resize(x: Tensor, boxes: Tensor, size: int, interpolation: Interpolation, flip: Tensor | None) -> Tensor:
    """Boxes and flip are on the device of x."""
    height, width = x.shape[2:]
    i, j, h, w = boxes.unbind(1)
    gain = 1 / 255 if x.dtype == torch.uint8 else 1.0
    rows = matrices(i, h, size=height, out=size, interpolation=interpolation)
    columns = matrices(j, w, size=width, out=size, interpolation=interpolation, reverse=flip, gain=gain)
    narrow = torch.bmm(x.float().flatten(1, 2), columns.mT)
    return rows[:, None] @ narrow.view(*x.shape[:3], size)


@dataclass(frozen=True)
class ResizedCrop:
    """A random box.  scale: its share of the image's area.  ratio: its width / height, log-uniform.

    As torchvision's RandomResizedCrop: ten tries, then the largest box in the middle.  A try is judged before pixels
    are rounded.  So a box that sticks out by less than half a pixel is refused here, and rounded to fit there.

    >>> boxes = ResizedCrop(scale=(0.5, 1.0)).boxes(ResizedCrop().draw(4), height=40, width=40, size=32)
    >>> boxes.shape
    torch.Size([4, 4])
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        check.interval("scale", self.scale, high=1.0)
        check.interval("ratio", self.ratio)
        check.choice("interpolation", self.interpolation, get_args(Interpolation))

    def draw(
        self, n: int, generator: torch.Generator | None = None, *, aspect: Float[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n 4"]:
        """aspect: width / height of each image; None: all are square.

        It does not change how many numbers are drawn, so the aspect of one image does not move the box of another.
        """
        device = generator.device if generator is not None else torch.device("cpu")
        u = torch.rand(n, 2 * _TRIES + 2, generator=generator, dtype=torch.float32, device=device)
        square = torch.ones(n, 1, dtype=torch.float32, device=device)
        wide = square if aspect is None else _aspect(aspect, n).to(device)[:, None]
        low, high = self.scale
        area = low + (high - low) * u[:, :_TRIES]
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = (low + (high - low) * u[:, _TRIES : 2 * _TRIES]).exp()
        sides = torch.stack([(area / ratio * wide).sqrt(), (area * ratio / wide).sqrt()], dim=2)
        fits = (sides <= 1).all(2)
        first = fits.int().argmax(1)
        sides = sides[torch.arange(n, device=device), first]
        found = fits.any(1)[:, None]
        nearest = wide.clamp(*self.ratio)
        largest = torch.cat([wide / nearest, nearest / wide], dim=1).clamp(max=1.0)
        position = torch.where(found, u[:, 2 * _TRIES :], _MIDDLE)
        return torch.cat([position, torch.where(found, sides, largest)], dim=1)

    def boxes(self, crop: Float[Tensor, "n 4"], *, height: Side, width: Side, size: int) -> Int64[Tensor, "n 4"]:
        """(i, j, h, w) in pixels of images of height x width."""
        limit = _limit(crop, height, width)
        sides = (crop[:, 2:] * limit).round().clamp(min=1).minimum(limit)
        corner = (crop[:, :2] * (limit - sides + 1)).floor().minimum(limit - sides)
        return torch.cat([corner, sides], dim=1).long()

    def cut(self, x: Tensor, boxes: Int64[Tensor, "n 4"], flip: Bool[Tensor, " n"], *, size: int) -> Tensor:
        """The boxes, resized and flipped; all on the device of x."""
        out = _resize(x, boxes, size, self.interpolation, flip)
        return out if self.interpolation == "bilinear" else out.clamp_(0, 1)  # the others overshoot


@dataclass(frozen=True)
class PadCrop:
    """Pads with `padding` black pixels, then cuts a box of the view's size, as supervised training on CIFAR does.

    >>> crop = PadCrop(padding=4)
    >>> boxes = crop.boxes(crop.draw(6), height=32, width=32, size=32)
    >>> boxes[:, 2:].unique().tolist()
    [32]
    """

    padding: int = 4

    def __post_init__(self) -> None:
        check.whole(0, padding=self.padding)

    def draw(
        self, n: int, generator: torch.Generator | None = None, *, aspect: Float[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n 4"]:
        device = generator.device if generator is not None else "cpu"
        position = torch.rand(n, 2, generator=generator, dtype=torch.float32, device=device)
        return torch.cat([position, torch.ones_like(position)], dim=1)

    def boxes(self, crop: Float[Tensor, "n 4"], *, height: Side, width: Side, size: int) -> Int64[Tensor, "n 4"]:
        """(i, j, size, size) in pixels of the image; i and j may be negative."""
        room = _limit(crop, height, width) + 2 * self.padding - size
        if bool((room < 0).any()):
            raise ValueError(
                f"a crop of {size} px needs images of at least {size - 2 * self.padding} px "
                f"with padding {self.padding}, got {height} x {width}"
            )
        corner = (crop[:, :2] * (room + 1)).floor().minimum(room) - self.padding
        return torch.cat([corner, torch.full_like(corner, size)], dim=1).long()

    def cut(self, x: Tensor, boxes: Int64[Tensor, "n 4"], flip: Bool[Tensor, " n"], *, size: int) -> Tensor:
        """The boxes, flipped; all on the device of x."""
        corner = boxes[:, :2] + self.padding
        padded = torch.nn.functional.pad(x, [self.padding] * 4)
        windows = padded.unfold(2, size, 1).unfold(3, size, 1)
        out = windows[torch.arange(len(x), device=x.device), :, corner[:, 0], corner[:, 1]]
        out = out.float().div_(255) if x.dtype == torch.uint8 else out.float()
        return hflip(out, flip)


def _aspect(given: Tensor, n: int) -> Tensor:
    if given.shape != (n,) or not bool(((given > 0) & given.isfinite()).all()):
        raise ValueError(f"aspect is width / height of each of the {n} images, got {given}")
    return given.float()


def _limit(crop: Tensor, height: Side, width: Side) -> Int64[Tensor, "n 2"]:
    sides = [torch.as_tensor(side, device=crop.device).expand(len(crop)) for side in (height, width)]
    return torch.stack(sides, dim=1)
