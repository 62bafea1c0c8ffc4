"""Snow, frost, fog, and a bright sky; their textures, clouds and crystals, are drawn and not read from files."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.diagnostics.robustness import scaling
from reglet.diagnostics.robustness.blur import moved
from reglet.diagnostics.robustness.draws import Draws
from reglet.diagnostics.robustness.warp import zoomed

Images = Float[Tensor, "n c h w"]
_LUMINANCE = (0.299, 0.587, 0.114)


def snow(x: Images, severity: int, draws: Draws) -> Images:
    """Flakes, drawn out in the direction in which they fall, on a picture that is paler."""
    mean, std, size, least, radius, sigma, keep = (
        (0.1, 0.3, 3.0, 0.5, 10.0, 4.0, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12.0, 4.0, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12.0, 8.0, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12.0, 8.0, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12.0, 12.0, 0.55),
    )[severity - 1]
    layer = flakes(x, draws, mean=mean, std=std, size=size, least=least)
    return snowed(x, moved(layer, radius, sigma, draws.uniform(-135.0, -45.0)), keep=keep)


def flakes(x: Images, draws: Draws, *, mean: float, std: float, size: float, least: float) -> Float[Tensor, "n 1 h w"]:
    """Noise in grains of `size` px at 224 px, black where it is below `least`.

    Enlarging noise bilinearly leaves 2/3 of its deviation.  Where grains are pixels and nothing is enlarged, that must
    be done by hand, or far more of it would pass the threshold.
    """
    layer = zoomed(draws.normal(1, *x.shape[2:]), max(1.0, size * scaling.noise(x)))
    layer = mean + std * 2 / 3 * layer / layer.square().mean((2, 3), keepdim=True).sqrt()
    return torch.where(layer < least, 0.0, layer).clamp(0, 1)


def snowed(x: Images, layer: Float[Tensor, "n 1 h w"], *, keep: float) -> Images:
    pale = torch.maximum(x, 1.5 * _grey(x) + 0.5)
    return keep * x + (1 - keep) * pale + layer + layer.rot90(2, (2, 3))


def frost(x: Images, severity: int, draws: Draws) -> Images:
    """The picture, darker, under synthetic crystals."""
    picture, ice = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[severity - 1]
    texture = crystals(draws, *x.shape[2:])
    return picture * x + ice * (texture if x.shape[1] == 3 else texture.mean(1, keepdim=True))


def fog(x: Images, severity: int, draws: Draws) -> Images:
    """A cloud before the picture, without more light in all.

    ImageNet-C makes its clouds by midpoint displacement, with amplitudes that fall by `decay` at each halving; noise
    of amplitude frequency^-(1 + log2 decay) is as rough.
    """
    thick, decay = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))[severity - 1]
    most = x.amax((1, 2, 3), keepdim=True)
    return (x + thick * cloud(draws, *x.shape[2:], slope=1 + math.log2(decay))) * most / (most + thick)


def brightness(x: Images, severity: int, draws: Draws) -> Images:
    return brighter(x, (0.1, 0.2, 0.3, 0.4, 0.5)[severity - 1])


def brighter(x: Images, amount: float) -> Images:
    """V + amount in the HSV of each pixel, hue and saturation kept: RGB times (V + amount) / V."""
    value = x.amax(1, keepdim=True)
    more = (value + amount).clamp(0, 1)
    return torch.where(value > 0, x * more / value.clamp_min(1e-6), more)


def _grey(x: Images) -> Float[Tensor, "n 1 h w"]:
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    return (x * torch.tensor(_LUMINANCE).view(3, 1, 1)).sum(1, keepdim=True)


def cloud(draws: Draws, h: int, w: int, *, slope: float) -> Float[Tensor, "n 1 h w"]:
    """Noise whose amplitude falls as frequency^-slope, from 0 at its least to 1 at its most in every image.

    Drawn on twice the size, of which a corner is kept: an FFT's textures are periodic, and clouds are not.
    """
    white = draws.normal(2 * h, 2 * w)
    fy, fx = torch.fft.fftfreq(2 * h)[:, None] * 2 * h, torch.fft.rfftfreq(2 * w)[None] * 2 * w
    frequency = (fy.square() + fx.square()).sqrt()
    gain = torch.where(frequency > 0, frequency.clamp_min(1) ** -slope, torch.zeros(()))
    field = torch.fft.irfft2(torch.fft.rfft2(white) * gain, s=(2 * h, 2 * w))[:, None, :h, :w]
    low, high = field.amin((2, 3), keepdim=True), field.amax((2, 3), keepdim=True)
    return (field - low) / (high - low).clamp_min(1e-12)


def crystals(draws: Draws, h: int, w: int) -> Float[Tensor, "n 3 h w"]:
    """Frost: bright ridges where a cloud crosses its middle, at three sizes, thicker towards the rim, bluish white.

    ImageNet-C lays photographs of frosted panes over its images; these are synthetic, and accuracies under frost are
    not comparable with those on ImageNet-C's.
    """
    ridges = torch.zeros(len(draws.generators), 1, h, w)
    for slope, weight in ((2.2, 0.5), (1.7, 0.3), (1.3, 0.2)):
        distance = (cloud(draws, h, w, slope=slope) - 0.5).abs()
        ridges += weight * (1 - 5 * distance).clamp_min(0)
    y, x = torch.linspace(-1, 1, h)[:, None], torch.linspace(-1, 1, w)[None]
    rim = torch.maximum(y.abs(), x.abs()) ** 2
    ice = (0.35 * cloud(draws, h, w, slope=1.8) + 0.75 * ridges + 0.25 * rim).clamp(0, 1)
    return ice * torch.tensor([0.85, 0.93, 1.0]).view(3, 1, 1)
