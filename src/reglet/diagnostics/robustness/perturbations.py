"""The 14 perturbation sequences of ImageNet-P: an image that changes a little from frame to frame.  arXiv:1903.12261.

Ten are its test set, four (speckle, Gaussian blur, spatter, shear) its extra ones.  Parameters are the published ones
at 224 px and 31 frames, scaled to other sizes as `scaling` says; with another number of frames the range is the same
and the steps differ.  ImageNet-P warps a 256 px image and crops it; having the crop alone, we mirror its borders.

Severity 1 is ImageNet-P.  It has a harder level or two for noise only; here severity k makes every change
1 + (k - 1) / 2 times as large, which for noise is about what those levels are.
"""

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet.diagnostics.robustness import noise, scaling, weather
from reglet.diagnostics.robustness.blur import moved
from reglet.diagnostics.robustness.corruptions import SEVERITIES, as_floats, no_such, numbers
from reglet.diagnostics.robustness.draws import Draws
from reglet.diagnostics.robustness.warp import gaussian_blur, warp, zoomed

Images = Float[Tensor, "n c h w"]
Frames = Callable[[Tensor, list[float], float, Draws], Iterator[Tensor]]  # images, times from 0 to 30, strength, draws


def _noisy(add: Callable[[Images, float, Draws], Images]) -> Frames:
    """The clean image, then frames with new noise each."""

    def frames(x: Images, times: list[float], strength: float, draws: Draws) -> Iterator[Images]:
        yield x
        for _ in times[1:]:
            yield add(x, strength, draws)

    return frames


def _each(change: Callable[[Images, float, float], Images]) -> Frames:
    """Frames that depend only on the image and the time."""

    def frames(x: Images, times: list[float], strength: float, draws: Draws) -> Iterator[Images]:
        for t in times:
            yield change(x, t, strength)

    return frames


def _zoom_blur(x: Images, times: list[float], strength: float, draws: Draws) -> Iterator[Images]:
    """The mean of all enlargements so far."""
    total = torch.zeros_like(x)
    for i, t in enumerate(times, 1):
        total = total + zoomed(x, 1 + 0.004 * strength * t)
        yield total / i


def _motion_blur(x: Images, t: float, strength: float) -> Images:
    return moved(x, 10 * strength, 3 * strength, torch.full((len(x),), 4 * t - 120))


def _snow(x: Images, times: list[float], strength: float, draws: Draws) -> Iterator[Images]:
    """The same flakes, falling in a direction that turns."""
    layer = weather.flakes(x, draws, mean=0.05 * strength, std=0.3, size=3.0, least=0.5)
    for t in times:
        yield weather.snowed(x, moved(layer, 14.0, 4.0, torch.full((len(x),), 4 * t - 150)), keep=1 - 0.15 * strength)


def _spatter(x: Images, times: list[float], strength: float, draws: Draws) -> Iterator[Images]:
    """Drops of water that run down.  ImageNet-P shades them from a distance transform; ours are soft-edged."""
    field = gaussian_blur(draws.normal(1, 2 * x.shape[2], x.shape[3]), max(0.7, 3.7 * scaling.lengths(x)))
    field = field / field.square().mean((2, 3), keepdim=True).sqrt()
    drops = ((field - 1.9 + 0.3 * (strength - 1)) * 2).clamp(0, 1)  # 1.9 deviations: 3 % of the picture
    colour = torch.tensor([175.0, 238.0, 238.0]).div(255).view(3, 1, 1)
    colour = colour if x.shape[1] == 3 else colour.mean().view(1, 1, 1)
    h = x.shape[2]
    for t in times:
        yield x + 0.6 * _rows(drops, h - 0.6 * t * scaling.lengths(x), h) * colour  # from above into the picture


def _rows(field: Float[Tensor, "n c h w"], first: float, count: int) -> Float[Tensor, "n c count w"]:
    """`count` rows from `first` on, interpolated if it is not a whole number."""
    low = int(first)
    here = field[:, :, low : low + count]
    return here if first == low else torch.lerp(here, field[:, :, low + 1 : low + 1 + count], first - low)


def _translate(x: Images, t: float, strength: float) -> Images:
    shift = torch.eye(3)
    shift[0, 2] = (t - 15) * 4 / 3 * strength * scaling.lengths(x)  # 20 px to either side
    return warp(x, shift)


def _rotate(x: Images, t: float, strength: float) -> Images:
    return warp(x, _turn(math.radians(t - 15) * strength))


def _turn(angle: float) -> Float[Tensor, "3 3"]:
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])


def _shear(x: Images, t: float, strength: float) -> Images:
    matrix = torch.eye(3)
    matrix[0, 1] = math.tan(math.radians(t - 15) * strength)
    return warp(x, matrix)


def _scale(x: Images, t: float, strength: float) -> Images:
    """From 0.4 to 1.15 times."""
    factor = max(0.1, 1 + (0.4 + 0.025 * t - 1) * strength)
    return warp(x, torch.diag(torch.tensor([factor, factor, 1.0])))


def _tilt(x: Images, t: float, strength: float) -> Images:
    """The image turned in space about both axes, seen from a distance of its diagonal, which is the focal length."""
    angle = math.radians(t - 15) * strength
    f = math.hypot(*x.shape[2:])
    c, s = math.cos(angle), math.sin(angle)
    about_x = torch.tensor([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
    about_y = torch.tensor([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])
    plane = (about_x @ about_y)[:, :2]  # where (x, y, 0) goes
    matrix = torch.cat([plane, torch.tensor([[0.0], [0.0], [f]])], 1)
    return warp(x, torch.diag(torch.tensor([f, f, 1.0])) @ matrix)


PERTURBATIONS: dict[str, Frames] = {
    "gaussian_noise": _noisy(lambda x, k, draws: noise.add_gaussian(x, 0.03 * k, draws)),
    "shot_noise": _noisy(lambda x, k, draws: noise.photons(x, 300 / k**2, draws)),
    "motion_blur": _each(_motion_blur),
    "zoom_blur": _zoom_blur,
    "snow": _snow,
    "brightness": _each(lambda x, t, k: weather.brighter(x, (t - 15) * 0.02 * k)),
    "translate": _each(_translate),
    "rotate": _each(_rotate),
    "tilt": _each(_tilt),
    "scale": _each(_scale),
    "speckle_noise": _noisy(lambda x, k, draws: noise.speckle(x, 0.05 * k, draws)),
    # only a few pixels even at 224 px, so it is scaled like noise
    "gaussian_blur": _each(lambda x, t, k: gaussian_blur(x, (0.25 + 0.035 * t) * k * scaling.noise(x))),
    "spatter": _spatter,
    "shear": _each(_shear),
}
NOISES = ("gaussian_noise", "shot_noise", "speckle_noise")  # whose frames are compared with the first, not the last


def frames_of(
    images: Tensor,
    name: str,
    *,
    frames: int = 31,
    severity: int = 1,
    seed: int = 0,
    index: Int[Tensor, " n"] | None = None,
) -> Iterator[Float[Tensor, "n c h w"]]:
    """The frames of the perturbation `name` for all images, one after another.  Arguments are those of `corrupt`."""
    if name not in PERTURBATIONS:
        raise ValueError(no_such("perturbation", name, PERTURBATIONS))
    if severity not in SEVERITIES or frames < 2:
        raise ValueError(f"expected a severity of 1 to 5 and two frames or more, got {severity} and {frames}")
    x = as_floats(images)
    draws = Draws(numbers(index, len(x)), seed=seed, name=f"sequence of {name}")
    times = [30 * i / (frames - 1) for i in range(frames)]
    for frame in PERTURBATIONS[name](x, times, 1 + (severity - 1) / 2, draws):
        yield frame.clamp(0, 1)
