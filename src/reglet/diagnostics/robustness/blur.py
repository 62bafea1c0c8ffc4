"""Blurs: out of focus, through frosted glass, moving, zooming."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.diagnostics.robustness import scaling
from reglet.diagnostics.robustness.draws import Draws
from reglet.diagnostics.robustness.warp import convolve, gaussian_blur, pixel_grid, sample, splat, zoomed

Images = Float[Tensor, "n c h w"]


def defocus_blur(x: Images, severity: int, draws: Draws) -> Images:
    """Averaged over a disc.  ImageNet-C smooths its discs a little besides; sharing subpixel shifts does that here."""
    radius = (3, 4, 6, 8, 10)[severity - 1] * scaling.lengths(x)
    side = torch.linspace(-1, 1, 33)
    disc = torch.cartesian_prod(side, side)
    disc = radius * disc[disc.square().sum(1) <= 1]
    return convolve(x, splat(disc[None], torch.ones(len(disc))))


def glass_blur(x: Images, severity: int, draws: Draws) -> Images:
    """Every pixel is read from a random place near by, one or more times, between two slight blurs.

    ImageNet-C swaps pixels one after the other, over whole pixels; reading them all at once needs no loop over pixels,
    and distances between pixels allow for any size.
    """
    sigma, reach, times = ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))[severity - 1]
    h, w = x.shape[2:]
    soft, far = sigma * scaling.lengths(x), reach * scaling.noise(x)
    x = gaussian_blur(x, soft)
    for _ in range(times):
        x = sample(x, pixel_grid(h, w) + draws.uniform(-far, far, h, w, 2))
    return gaussian_blur(x, soft)


def motion_blur(x: Images, severity: int, draws: Draws) -> Images:
    radius, sigma = ((10.0, 3.0), (15.0, 5.0), (15.0, 8.0), (15.0, 12.0), (20.0, 15.0))[severity - 1]
    return moved(x, radius, sigma, draws.uniform(-45.0, 45.0))


def moved(x: Images, radius: float, sigma: float, degrees: Float[Tensor, " n"]) -> Images:
    """Averaged along a line to one side, 2 radius px long at 224 px, with the weights of half a Gaussian."""
    scale = scaling.lengths(x)
    way = torch.arange(0, 2 * radius + 0.5, 0.5)  # half pixels of 224: finer than any image is
    weights = (-0.5 * (way / sigma) ** 2).exp()
    angle = degrees * math.pi / 180
    direction = torch.stack([angle.cos(), angle.sin()], -1)
    return convolve(x, splat(scale * way[None, :, None] * direction[:, None], weights))


def zoom_blur(x: Images, severity: int, draws: Draws) -> Images:
    """The mean of enlargements from 1 to 1.1, 1.15, 1.2, 1.24 or 1.3 times."""
    most, step = ((10, 1), (15, 1), (20, 2), (24, 2), (30, 3))[severity - 1]
    factors = [1 + i / 100 for i in range(0, most + 1, step)]
    return torch.stack([zoomed(x, factor) for factor in factors]).mean(0)
