"""What machines do to pictures: contrast, elastic warping, pixelation, JPEG."""

from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from reglet.diagnostics.robustness import scaling
from reglet.diagnostics.robustness.draws import Draws
from reglet.diagnostics.robustness.warp import gaussian_blur, pixel_grid, sample

Images = Float[Tensor, "n c h w"]


def contrast(x: Images, severity: int, draws: Draws) -> Images:
    share = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * share + mean


def elastic_transform(x: Images, severity: int, draws: Draws) -> Images:
    """A random affine map, that of three points moved, then a smooth random displacement.

    ImageNet-C smooths uniform noise of amplitude alpha over sigma px, which leaves a deviation of
    alpha / (2 sigma sqrt(3 pi)).  That deviation, in px at 224, is `wobble` here, and `smooth` the sigma: 1.3 px
    throughout at the first severity, whose sigma is nearly the image.
    """
    wobble, smooth, corner = (
        (1.3, 171.0, 24.4),
        (4.1, 19.5, 48.8),
        (0.81, 2.44, 4.9),
        (1.14, 2.44, 4.9),
        (1.95, 2.44, 4.9),
    )[severity - 1]
    h, w = x.shape[2:]
    corners = draws.uniform(-corner, corner, 3, 2) * scaling.lengths(x)
    fields = draws.normal(2, h, w)
    sigma = smooth * scaling.noise(x)
    # beyond a third of the image a smoothed field is a constant, and smoothing costs its width
    fields = fields[:, :, :1, :1].expand(-1, -1, h, w) if 3 * sigma > min(h, w) else _unit(gaussian_blur(fields, sigma))
    places = pixel_grid(h, w) + wobble * scaling.noise(x) * fields.permute(0, 2, 3, 1)
    return sample(x, _affine(places, corners, side=min(h, w)))


def _unit(fields: Float[Tensor, "n 2 h w"]) -> Float[Tensor, "n 2 h w"]:
    return fields / fields.square().mean((2, 3), keepdim=True).sqrt().clamp_min(1e-6)


def _affine(
    places: Float[Tensor, "n h w 2"], corners: Float[Tensor, "n 3 2"], *, side: int
) -> Float[Tensor, "n h w 2"]:
    """The affine map that takes three points a third of the side from the middle to where `corners` moves them."""
    third = side / 3
    start = torch.tensor([[third, third], [third, -third], [-third, -third]])
    ones = torch.ones(3, 1)
    matrix = torch.linalg.solve(torch.cat([start, ones], 1), start + corners)  # rows: x, y, 1 -> new (x, y)
    return places @ matrix[:, None, :2] + matrix[:, None, None, 2]


def pixelate(x: Images, severity: int, draws: Draws) -> Images:
    """Blocks of 1.7 to 4 px at 224 px; what they are longer than a pixel is the length that is scaled."""
    block = 1 + (1 / (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1] - 1) * scaling.lengths(x)
    rows, columns = (_blocks(side, max(1, round(side / block))) for side in x.shape[2:])
    return rows @ x @ columns.T


def _blocks(side: int, count: int) -> Float[Tensor, "s s"]:
    """The matrix that averages a line over `count` equal blocks; a pixel on a border takes from both in proportion."""
    edges = torch.arange(count + 1) * (side / count)
    pixel = torch.arange(side)[:, None]
    overlap = (torch.minimum(edges[1:], pixel + 1.0) - torch.maximum(edges[:-1], pixel + 0.0)).clamp_min(0)
    return overlap @ (overlap / overlap.sum(0)).T


def jpeg_compression(x: Images, severity: int, draws: Draws) -> Images:
    """Pillow's JPEG.  Qualities 25 to 7 at 224 px; the quantisation steps, which are noise, shrink by sqrt(s)."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("JPEG needs Pillow: pip install reglet[data]") from error
    quality = jpeg_quality((25, 18, 15, 10, 7)[severity - 1], scaling.noise(x))
    pixels = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    out = np.empty_like(pixels)
    for i, image in enumerate(pixels):
        file = BytesIO()
        Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).save(file, "JPEG", quality=quality)
        out[i] = np.asarray(Image.open(file)).reshape(image.shape)
    return torch.from_numpy(out).permute(0, 3, 1, 2).float() / 255


def jpeg_quality(quality: int, scale: float) -> int:
    """The quality whose quantisation steps are `scale` times as large.

    libjpeg's steps, in percent of the standard tables: 5000 / q below 50, and 200 - 2 q from there.

    >>> jpeg_quality(25, 1.0), jpeg_quality(25, 0.5), jpeg_quality(25, 0.25)
    (25, 50, 75)
    """
    steps = scale * (5000 / quality if quality < 50 else 200 - 2 * quality)
    return max(1, min(100, round(5000 / steps if steps > 100 else (200 - steps) / 2)))
