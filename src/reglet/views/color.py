"""Brightness, contrast, saturation, hue, grey and solarization, with a factor for each image; and the normalisation of
channels."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reglet import check
from reglet.constants import kept_on_device
from reglet.moves import moved

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # in `factors` and `order`, as torchvision numbers them
_GREY = (0.2989, 0.587, 0.114)


def rgb_to_grayscale(x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 1 h w"]:
    """0.2989 r + 0.587 g + 0.114 b.  An image of one channel stays as it is.

    >>> round(rgb_to_grayscale(torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)).item(), 4)
    0.2989
    """
    check.images(x, channels=(1, 3))
    if x.shape[1] == 1:
        return x.clone()
    r, g, b = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    return (r * _GREY[0]).add_(g, alpha=_GREY[1]).add_(b, alpha=_GREY[2])


def adjust_brightness(x: Float[Tensor, "n c h w"], factor: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
    """clip(f x), as torchvision on floats.

    >>> adjust_brightness(torch.full((1, 3, 1, 1), 0.5), torch.tensor([1.5])).flatten().tolist()
    [0.75, 0.75, 0.75]
    """
    return _only(BRIGHTNESS, x, factor)


def adjust_contrast(x: Float[Tensor, "n c h w"], factor: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
    """clip(f x + (1 - f) m), m the mean grey of the image, as torchvision on floats.

    >>> x = torch.tensor([0.25, 0.75]).view(1, 1, 1, 2)
    >>> adjust_contrast(x, torch.tensor([0.5])).flatten().tolist()
    [0.375, 0.625]
    """
    return _only(CONTRAST, x, factor)


def adjust_saturation(x: Float[Tensor, "n c h w"], factor: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
    """clip(f x + (1 - f) grey(x)), as torchvision on floats.  One channel has no saturation and stays as it is.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> [round(c, 3) for c in adjust_saturation(red, torch.tensor([0.0])).flatten().tolist()]
    [0.299, 0.299, 0.299]
    """
    return x.clone() if x.shape[1] == 1 else _only(SATURATION, x, factor)


def adjust_hue(x: Float[Tensor, "n c h w"], shift: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
    """The hue of each image, turned by `shift` in [-1/2, 1/2] of the wheel.  One channel has no hue.

    RGB -> HSV -> RGB in closed form, without a case for each sixth of the wheel.  With v = max and d = max - min, the
    hue in sixths of the wheel, from -3 to 3, is

        H = sign(g - b) (2 d - v + g + b - r) / d.

    After the turn, H' = H + 6 shift, and each channel is v - d clip(2 - |wrap(H' + o)|, 0, 1).  o is 3, 1, -1 for r, g,
    b, and wrap goes to [-3, 3].  Equals torchvision's `adjust_hue` on floats, up to rounding.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> adjust_hue(red, torch.tensor([1 / 3])).flatten().round().tolist()  # green
    [0.0, 1.0, 0.0]
    """
    check.images(x, channels=(1, 3))
    check.one_each(x, shift=shift)
    return x.clone() if x.shape[1] == 1 else _turn_hue(x, shift)


def _turn_hue(x: Tensor, shift: Tensor, *, out: Tensor | None = None) -> Tensor:
    """out: may be x, which saves memory; None passes a gradient on."""
    r, g, b = x.unbind(1)
    v = torch.maximum(torch.maximum(r, g), b)
    d = v - torch.minimum(torch.minimum(r, g), b)
    size = torch.copysign((g + b).sub_(r).sub_(v).add_(d, alpha=2), g - b)
    some = d.clamp(min=torch.finfo(x.dtype).tiny)  # where d is 0, so is the size
    turned = torch.addcdiv(shift.to(x)[:, None, None], size, some, value=1 / 6)
    offset = _numbers(3 / 6, 1 / 6, -1 / 6, like=x).to(x.dtype)
    wheel = torch.add(turned[:, None], offset[:, None, None], out=out)
    share = wheel.sub_(wheel.round()).abs_().sub_(2 / 6).clamp_(-1 / 6, 0)  # a sixth of the clip, negated
    return torch.addcmul(v[:, None], share, d[:, None], value=6, out=out)


def solarize(x: Float[Tensor, "n c h w"], *, threshold: float = 0.5) -> Float[Tensor, "n c h w"]:
    """1 - x where x >= threshold.  1/2 is 128 of torchvision's uint8.

    >>> solarize(torch.tensor([0.25, 0.75]).view(1, 1, 1, 2)).flatten().tolist()
    [0.25, 0.25]
    """
    check.images(x)
    check.finite(threshold=threshold)
    return torch.lerp(x, 1 - x, (x >= threshold).to(x.dtype))  # six times faster than torch.where


def color_jitter(
    x: Float[Tensor, "n c h w"],
    factors: Float[Tensor, "n 4"],
    order: Int64[Tensor, "n 4"],
    jitter: Bool[Tensor, " n"] | None = None,
) -> Float[Tensor, "n c h w"]:
    """The four adjustments by `factors` (brightness, contrast, saturation, hue), in the `order` of each image.

    Three of the four are one formula with different coefficients.  So all images take their first such step together,
    then their second, then their third, and the hue where their order has it.  Values are clipped after each step, as
    torchvision does on floats.  On uint8 torchvision also rounds down after each step.

    Images that do not have three channels have no saturation and no hue; their grey is the mean of their channels.
    jitter: images for which it is False stay as they are.

    >>> x = torch.full((1, 3, 4, 4), 0.5)
    >>> darker = color_jitter(x, torch.tensor([[0.5, 1.0, 1.0, 0.0]]), torch.tensor([[0, 1, 2, 3]]))
    >>> round(darker.mean().item(), 4)
    0.25
    """
    check.images(x)
    check.one_each(x, factors=factors, order=order)
    every = torch.ones(len(x), dtype=torch.bool, device=order.device)
    return jitter_(x.clone(), steps_of(factors, order, every if jitter is None else jitter).to(x.device))


class Steps(NamedTuple):
    """The steps of `color_jitter`.  Images are sorted by the number of steps before their hue.

    counts: how many images have their hue first, second, third, last.  turned: whether any of these changes its hue.
    leading: whether `rows` are the first images, in their order.
    """

    rows: Int64[Tensor, " m"]
    steps: Int64[Tensor, "m 3"]
    amounts: Float[Tensor, "m 3"]
    hue: Float[Tensor, " m"]
    counts: list[int]
    turned: list[bool]
    leading: bool

    def to(self, device: torch.device) -> "Steps":
        rows, steps, amounts, hue = moved([self.rows, self.steps, self.amounts, self.hue], device)
        return self._replace(rows=rows, steps=steps, amounts=amounts, hue=hue)


def steps_of(factors: Tensor, order: Tensor, jitter: Tensor) -> Steps:
    hue_at = order.eq(HUE).int().argmax(1)
    chosen = [((hue_at == k) & jitter).nonzero()[:, 0] for k in range(4)]
    rows = torch.cat(chosen)
    factors, order = factors[rows], order[rows]
    steps = order[order != HUE].view(-1, 3)
    hue, counts = factors[:, HUE], [len(part) for part in chosen]
    turned = [bool(part.any()) for part in hue.split(counts)]
    leading = torch.equal(rows, torch.arange(len(rows), device=rows.device))
    return Steps(rows, steps, factors.gather(1, steps), hue, counts, turned, leading)


def jitter_order(order: Int64[Tensor, "n 4"], jitter: Bool[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """Images sorted by the place of their hue, those without jitter last.  So sorted, `jitter_` needs no copies."""
    hue_at = order.eq(HUE).int().argmax(1)
    return torch.where(jitter, hue_at, 4).argsort(stable=True)


def jitter_(x: Tensor, p: Steps) -> Tensor:
    """`color_jitter`, in place."""
    learned = torch.is_grad_enabled() and (x.requires_grad or p.amounts.requires_grad or p.hue.requires_grad)
    in_place = p.leading and not learned
    part = x[: len(p.rows)] if in_place else x.index_select(0, p.rows)
    start = 0
    for k in range(4):
        if k:
            part = _blend(part, p.steps[:, k - 1], p.amounts[:, k - 1], out=None if learned else part)
        now = slice(start, start := start + p.counts[k])
        if x.shape[1] == 3 and p.turned[k]:
            if learned:
                part = part.slice_scatter(_turn_hue(part[now], p.hue[now]), start=now.start, end=now.stop)
            else:
                _turn_hue(part[now], p.hue[now], out=part[now])
    return x if in_place else x.index_copy_(0, p.rows, part)


def _only(step: int, x: Tensor, factor: Tensor) -> Tensor:
    check.images(x, channels=(1, 3))
    check.one_each(x, factor=factor)
    if bool((factor < 0).any()):
        raise ValueError(f"factors must not be negative, got {float(factor.min())}")
    return _blend(x, torch.full((len(x),), step, dtype=torch.float32, device=x.device), factor.to(x.device))


def _blend(x: Tensor, step: Tensor, factor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """clip(f x + (1 - f) other), where other is 0 (brightness), the mean grey (contrast) or the grey (saturation).

    out: may be x, which saves memory; None passes a gradient on.
    """
    if x.shape[1] == 3:
        grey = rgb_to_grayscale(x)
    else:  # no colours: nothing to saturate, and all channels weigh the same
        factor, grey = torch.where(step == SATURATION, 1.0, factor), x.mean(1, keepdim=True)
    rest = 1 - factor
    f, of_mean, of_grey = (
        value.to(x)[:, None, None, None] for value in (factor, rest * (step == CONTRAST), rest * (step == SATURATION))
    )
    other = (grey * of_grey).add_(of_mean * grey.mean((2, 3), keepdim=True))
    return torch.mul(x, f, out=out).add_(other).clamp_(0, 1)


@kept_on_device
def _numbers(*values: float, device: torch.device) -> Float[Tensor, " k"]:
    return torch.tensor(values, dtype=torch.float32, device=device)


@dataclass(frozen=True)
class ColorJitter:
    """Factors uniform in [max(0, 1 - a), 1 + a], hue in [-a, a], in random order; with probability `p`.

    >>> jitter, factors, order = ColorJitter(p=1.0).draw(8)
    >>> jitter.all().item(), factors.shape, order.shape
    (True, torch.Size([8, 4]), torch.Size([8, 4]))
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    p: float = 0.8

    def __post_init__(self) -> None:
        check.probability(p=self.p)
        check.not_negative(brightness=self.brightness, contrast=self.contrast, saturation=self.saturation)
        check.between(0, 0.5, hue=self.hue)  # a share of the colour wheel

    def draw(
        self, n: int, generator: torch.Generator | None = None
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, "n 4"], Int64[Tensor, "n 4"]]:
        """Whether to jitter, the four factors, their order."""
        device = generator.device if generator is not None else "cpu"
        u = torch.rand(n, 9, generator=generator, dtype=torch.float32, device=device)
        spans = [(max(0.0, 1 - a), 1 + a) for a in (self.brightness, self.contrast, self.saturation)]
        low, high = torch.tensor([*spans, (-self.hue, self.hue)], dtype=torch.float32, device=device).unbind(1)
        return u[:, 8] < self.p, low + (high - low) * u[:, :4], u[:, 4:8].argsort(dim=1)


@dataclass(frozen=True)
class Normalize:
    """(x - mean) / std of each channel, by default with ImageNet's numbers.

    Images with another number of channels use the average mean and deviation for all of their channels.

    >>> [round(value, 2) for value in Normalize()(torch.full((1, 3, 1, 1), 0.5)).flatten().tolist()]
    [0.07, 0.2, 0.42]
    """

    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        check.numbers("mean", self.mean)
        check.numbers("std", self.std, each=check.positive)
        if len(self.mean) != len(self.std):
            raise ValueError(f"one mean and one std for each channel, got {len(self.mean)} and {len(self.std)}")

    def __call__(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        mean, std = self._of_channels(x)
        return (x - mean) / std

    def into(self, out: Float[Tensor, "n c h w"], x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Written to `out`, which may be x itself."""
        mean, std = self._of_channels(x)
        return torch.sub(x, mean, out=out).div_(std)

    def _of_channels(self, x: Tensor) -> tuple[Float[Tensor, "_ 1 1"], Float[Tensor, "_ 1 1"]]:
        check.images(x)
        mean, std = (_numbers(*values, like=x).to(x.dtype)[:, None, None] for values in (self.mean, self.std))
        return (mean, std) if len(mean) == x.shape[1] else (mean.mean(0, keepdim=True), std.mean(0, keepdim=True))
