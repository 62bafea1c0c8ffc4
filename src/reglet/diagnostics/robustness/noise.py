"""Noise: Gaussian, shot (photons), impulse (dead pixels), speckle (in proportion to the light)."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.diagnostics.robustness import scaling
from reglet.diagnostics.robustness.draws import Draws

Images = Float[Tensor, "n c h w"]


def gaussian_noise(x: Images, severity: int, draws: Draws) -> Images:
    return add_gaussian(x, (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1], draws)


def shot_noise(x: Images, severity: int, draws: Draws) -> Images:
    return photons(x, (60.0, 25.0, 12.0, 5.0, 3.0)[severity - 1], draws)


def impulse_noise(x: Images, severity: int, draws: Draws) -> Images:
    """A share of all values is black or white, each half the time."""
    share = min(1.0, (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1] * scaling.noise(x))
    u = draws.uniform(0.0, 1.0, *x.shape[1:])
    return torch.where(u < share, (u < share / 2).to(x.dtype), x)


def add_gaussian(x: Images, std: float, draws: Draws) -> Images:
    return x + std * scaling.noise(x) * draws.normal(*x.shape[1:])


def photons(x: Images, rate: float, draws: Draws) -> Images:
    """Poisson counts of `rate` photons at full brightness; their relative deviation is 1 / sqrt(rate)."""
    rate = rate / scaling.noise(x) ** 2
    return draws.poisson(x * rate) / rate


def speckle(x: Images, std: float, draws: Draws) -> Images:
    return x + x * std * scaling.noise(x) * draws.normal(*x.shape[1:])
