"""Images as data: one file for many."""

import base64
import io
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

PIXELS = 4_000_000  # of a sheet, at most
LARGEST = 96  # side of a picture on it


def sheet(images: UInt8[Tensor, "n c h w"]) -> tuple[str, int, int]:
    """(data URI, side, columns): all images on one WebP, row by row, each `side` px, smaller the more there are."""
    n = len(images)
    side = max(8, min(LARGEST, images.shape[2], math.isqrt(PIXELS // n)))
    columns = math.ceil(math.sqrt(n))
    tiles = resized(rgb(images), side)
    blank = tiles.new_zeros(columns * math.ceil(n / columns) - n, 3, side, side)
    rows = torch.cat([tiles, blank]).unflatten(0, (-1, columns))
    return encode(rows.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)), side, columns


def strip(images: UInt8[Tensor, "n c h w"], *, side: int = 64) -> str:
    """A data URI: images in a row, with a gap between them, as wide as the strips of others of this number."""
    tiles = F.pad(resized(rgb(images), side), (0, 4), value=128)
    return encode(tiles.permute(2, 0, 3, 1).flatten(1, 2)[:, :-4], quality=85)


def rgb(images: UInt8[Tensor, "n c h w"]) -> UInt8[Tensor, "n 3 h w"]:
    return images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images[:, :3]


def resized(images: UInt8[Tensor, "n 3 h w"], side: int) -> UInt8[Tensor, "n 3 s s"]:
    """Whole multiples keep pixels sharp; anything else is smoothed."""
    if images.shape[2] == images.shape[3] and side % images.shape[2] == 0:
        k = side // images.shape[2]
        return images.repeat_interleave(k, 2).repeat_interleave(k, 3)
    small = F.interpolate(images.float(), size=(side, side), mode="bilinear", antialias=True, align_corners=False)
    return small.round().clamp(0, 255).to(torch.uint8)


def colours(maps: Float[Tensor, "n 3 h w"]) -> UInt8[Tensor, "n 3 h w"]:
    return (255 * maps).round().clamp(0, 255).to(torch.uint8)


def encode(pixels: UInt8[Tensor, "h w 3"], *, quality: int = 75) -> str:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures on the page need Pillow: pip install 'reglet[report]'") from error
    buffer = io.BytesIO()
    Image.fromarray(pixels.contiguous().numpy()).save(buffer, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
