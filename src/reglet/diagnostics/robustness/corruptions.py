"""The 15 corruptions of ImageNet-C.  Hendrycks & Dietterich, ICLR 2019, arXiv:1903.12261.

Parameters are the published ones at 224 px, scaled to other sizes as `scaling` says.  The images are ours: no OpenCV,
no ImageMagick, no JPEG around every image, and no rounding to 8 bits, so accuracies are comparable among models that
were measured here, not with tables of ImageNet-C.
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet.diagnostics.robustness import blur, digital, noise, weather
from reglet.diagnostics.robustness.draws import Draws

CORRUPTIONS: dict[str, Callable[[Tensor, int, Draws], Tensor]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": weather.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
}
SEVERITIES = (1, 2, 3, 4, 5)


@torch.no_grad()
def corrupt(
    images: Tensor, name: str, *, severity: int, seed: int = 0, index: Int[Tensor, " n"] | None = None
) -> Float[Tensor, "n c h w"]:
    """`images`, uint8 or floats in [0, 1], under the corruption `name`; floats in [0, 1], on the CPU.

    index: of each image in its data set; 0, 1, ... if not given.  It decides, with the seed, what is drawn for it.

    >>> corrupt(torch.zeros(2, 3, 32, 32), "fog", severity=3).shape
    torch.Size([2, 3, 32, 32])
    """
    if name not in CORRUPTIONS:
        raise ValueError(no_such("corruption", name, CORRUPTIONS))
    if severity not in SEVERITIES:
        raise ValueError(f"severity is 1, 2, 3, 4 or 5, got {severity}")
    x = as_floats(images)
    draws = Draws(numbers(index, len(x)), seed=seed, name=name)
    return CORRUPTIONS[name](x, severity, draws).clamp(0, 1)


def as_floats(images: Tensor) -> Float[Tensor, "n c h w"]:
    """In [0, 1], on the CPU, where the generators are."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or min(images.shape[2:]) < 8:
        raise ValueError(f"expected images (n, 1 or 3, h, w) of 8 px or more, got {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        return images.cpu().float() / 255
    if not images.is_floating_point():
        raise TypeError(f"expected uint8 images or floats in [0, 1], got {images.dtype}")
    x = images.cpu().float()
    if len(x) and not (float(x.min()) >= 0 and float(x.max()) <= 1):
        raise ValueError(
            f"floats must lie in [0, 1], before normalisation; got {float(x.min()):.3g} to {float(x.max()):.3g}"
        )
    return x


def numbers(index: Int[Tensor, " n"] | None, n: int) -> list[int]:
    if index is None:
        return list(range(n))
    if len(index) != n:
        raise ValueError(f"expected an index for each of {n} images, got {len(index)}")
    found: list[int] = index.tolist()
    return found


def no_such(what: str, name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"there is no {what} {name!r}.{hint} There are {', '.join(known)}"
