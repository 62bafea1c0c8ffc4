"""Snow, frost, fog, and a bright sky."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.diagnostics.robustness import scaling
from reglet.diagnostics.robustness.blur import moved
from reglet.diagnostics.robustness.draws import Draws
from reglet.diagnostics.robustness.textures import cloud, crystals
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
