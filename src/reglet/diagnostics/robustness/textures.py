"""Random textures without a texture file: clouds, crystals, drops."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.diagnostics.robustness.draws import Draws


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
