"""Brightness, contrast, saturation, grey and solarization, a factor for each image."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reglet.views import check
from reglet.views.hue import adjust_hue

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # in `factors` and `order`, as torchvision numbers them
_GREY = (0.2989, 0.587, 0.114)


def rgb_to_grayscale(x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 1 h w"]:
    """0.2989 r + 0.587 g + 0.114 b; one channel is grey already."""
    check.images(x, channels=(1, 3))
    if x.shape[1] == 1:
        return x.clone()
    r, g, b = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    return (r * _GREY[0]).add_(g, alpha=_GREY[1]).add_(b, alpha=_GREY[2])


def adjust_brightness(x: Float[Tensor, "n c h w"], factor: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
    """clip(f x): torchvision's, on floats."""
    return _only(BRIGHTNESS, x, factor)


def adjust_contrast(x: Float[Tensor, "n c h w"], factor: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
    """clip(f x + (1 - f) m), m the mean grey of the image: torchvision's, on floats."""
    return _only(CONTRAST, x, factor)


def adjust_saturation(x: Float[Tensor, "n c h w"], factor: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
    """clip(f x + (1 - f) grey(x)): torchvision's, on floats; one channel has no saturation."""
    return x.clone() if x.shape[1] == 1 else _only(SATURATION, x, factor)


def solarize(x: Float[Tensor, "n c h w"], *, threshold: float = 0.5) -> Float[Tensor, "n c h w"]:
    """1 - x where x >= threshold.  1/2 is torchvision's 128 on uint8."""
    check.images(x)
    return torch.lerp(x, 1 - x, (x >= threshold).to(x.dtype))  # six times as fast as torch.where, and as exact


def color_jitter(
    x: Float[Tensor, "n c h w"],
    factors: Float[Tensor, "n 4"],
    order: Int64[Tensor, "n 4"],
    jitter: Bool[Tensor, " n"] | None = None,
) -> Float[Tensor, "n c h w"]:
    """The four adjustments by `factors` (brightness, contrast, saturation, hue), for each image in its own `order`.

    Three of them are one formula with different coefficients, so all images take their first such step together, then
    their second, then their third; hue comes before or after these, where the image's order has it.  Clipped after each
    step, as torchvision does on floats; on uint8 it also rounds down after each, up to 1/255 a step.

    jitter: images for which it is False stay as they are.
    """
    check.images(x, channels=(1, 3))
    check.one_each(x, factors=factors, order=order)
    return jitter_(x.clone(), factors, order, torch.ones(len(x), dtype=torch.bool) if jitter is None else jitter)


def jitter_(x: Tensor, factors: Tensor, order: Tensor, jitter: Tensor) -> Tensor:
    """`color_jitter`, in place."""
    hue_at = order.eq(HUE).int().argmax(1)  # so many steps come before the hue
    chosen = [((hue_at == k) & jitter).nonzero()[:, 0] for k in range(4)]
    some = torch.cat(chosen)
    factors, order = factors[some], order[some]
    steps = order[order != HUE].view(-1, 3)
    amounts = factors.gather(1, steps)
    rows = some.to(x.device)
    part = x.index_select(0, rows)
    start = 0
    for k in range(4):
        if k:
            part = _blend(part, steps[:, k - 1], amounts[:, k - 1])
        now = slice(start, start := start + len(chosen[k]))
        if bool(factors[now, HUE].any()):
            part[now] = adjust_hue(part[now], factors[now, HUE])
    return x.index_copy_(0, rows, part)


def _only(step: int, x: Tensor, factor: Tensor) -> Tensor:
    check.images(x, channels=(1, 3))
    check.one_each(x, factor=factor)
    if bool((factor < 0).any()):
        raise ValueError(f"factors must not be negative, got {float(factor.min())}")
    return _blend(x, torch.full((len(x),), step, device=factor.device), factor)


def _blend(x: Tensor, step: Tensor, factor: Tensor) -> Tensor:
    """clip(f x + (1 - f) other); other is 0, the mean grey or the grey, by the number of the step.

    The first and the last are a matrix on the channels of a pixel, the mean grey is an offset.
    """
    grey = torch.tensor(_GREY, device=x.device, dtype=x.dtype)
    if x.shape[1] == 1:
        factor, grey = torch.where(step == SATURATION, 1.0, factor), grey.new_ones(1)
    rest = 1 - factor
    f, of_mean, of_grey = (
        value.to(x)[:, None, None] for value in (factor, rest * (step == CONTRAST), rest * (step == SATURATION))
    )
    pixels = x.flatten(2)
    offset = of_mean * (pixels.mean(2) @ grey)[:, None, None]
    mix = f * torch.eye(len(grey), device=x.device, dtype=x.dtype) + of_grey * grey
    return (mix @ pixels).add_(offset).clamp_(0, 1).view(x.shape)


@dataclass(frozen=True)
class ColorJitter:
    """Factors uniform in [max(0, 1 - a), 1 + a], hue in [-a, a], in random order; with probability `p`."""

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    p: float = 0.8

    def __post_init__(self) -> None:
        check.probability(p=self.p)
        for name in ("brightness", "contrast", "saturation", "hue"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.hue > 0.5:
            raise ValueError(f"hue is a share of the colour wheel of at most 0.5, got {self.hue}")

    def draw(
        self, n: int, generator: torch.Generator | None = None
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, "n 4"], Int64[Tensor, "n 4"]]:
        """Whether to jitter, the four factors, their order."""
        device = generator.device if generator is not None else "cpu"
        u = torch.rand(n, 9, generator=generator, device=device)
        spans = [(max(0.0, 1 - a), 1 + a) for a in (self.brightness, self.contrast, self.saturation)]
        low, high = torch.tensor([*spans, (-self.hue, self.hue)], device=device).unbind(1)
        return u[:, 8] < self.p, low + (high - low) * u[:, :4], u[:, 4:8].argsort(dim=1)
