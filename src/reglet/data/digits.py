"""Handwritten digits that raw pixels cannot read: the data set that needs no download.

Each of scikit-learn's 1,797 digits of 8 x 8 pixels is placed once on a 32 px canvas, bright on a textured ground.
Position, size, angle and both colours are random.  A linear classifier of the pixels is right for 97.4 % of the plain
digits, which leaves nothing to learn.  Here it is right for 20.4 %.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

STYLES = ("plain", "stripes", "checks", "clouds")
ANGLES = ((-30.0, -10.0), (-10.0, 10.0), (10.0, 30.0))  # degrees, anticlockwise
SIZE = (16.0, 22.0)  # the digit's 8 x 8 frame, in pixels of the canvas
TEST = 500

_CANVAS = 32
_UNIFORMS = 64  # for each digit: 2 for the domains, 4 for the ink, 4 for the texture, 5 colours, 49 for the clouds
_LUMINANCE = torch.tensor([0.299, 0.587, 0.114])


class Digits(NamedTuple):
    """Images with labels: the digit, and two nuisances that may serve as the domain.

    >>> digits = canvas_digits("test")
    >>> digits.images.dtype, digits.style.unique().tolist()
    (torch.uint8, [0, 1, 2, 3])
    """

    images: UInt8[Tensor, "n 3 32 32"]
    labels: Int64[Tensor, " n"]
    style: Int64[Tensor, " n"]  # index into STYLES
    angle: Int64[Tensor, " n"]  # index into ANGLES


def canvas_digits(split: Literal["train", "test", "all"] = "all", *, seed: int = 0) -> Digits:
    """1,297 digits for training, 500 for testing.

    A digit's canvas depends only on `seed` and the digit's index, and the split on neither.  So every call, part and
    machine sees the same images.

    >>> canvas_digits("test").images.shape
    torch.Size([500, 3, 32, 32])
    """
    glyphs, labels = _load()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0), device="cpu")
    parts = {"train": order[TEST:], "test": order[:TEST], "all": order}
    if split not in parts:
        raise ValueError(f"split is one of {', '.join(parts)}; got {split!r}")
    index = parts[split].sort().values
    return place(glyphs[index], labels[index], index, seed=seed)


def place(
    glyphs: Float[Tensor, "n 8 8"], labels: Int64[Tensor, " n"], index: Int64[Tensor, " n"], *, seed: int
) -> Digits:
    """Place each glyph (ink in [0, 1]) on the canvas of (seed, index)."""
    u = _draw(index, seed=seed)
    style = (u[:, 0] * len(STYLES)).long()
    angle = (u[:, 1] * len(ANGLES)).long()
    ink = _ink(glyphs, u[:, 2:6], angle)
    ground = _texture(u[:, 6:10], u[:, 15:], style)
    front, back, other = _colours(u[:, 10:15])
    canvas = torch.lerp(back, other, ground)
    images = torch.lerp(canvas, front, ink)
    return Digits((images * 255).round().to(torch.uint8), labels, style, angle)


def _load() -> tuple[Float[Tensor, "n 8 8"], Int64[Tensor, " n"]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the embedded digits come with scikit-learn: pip install reglet[data]") from error
    source = load_digits()
    return torch.from_numpy(source.images).float() / 16, torch.from_numpy(source.target).long()


def _draw(index: Int64[Tensor, " n"], *, seed: int) -> Float[Tensor, "n u"]:
    """Uniform numbers for each digit, from a generator of its own.

    numpy's, because torch's CPU generator takes 32 bits of its seed: no room for a seed and an index.
    """
    rows = [np.random.default_rng((seed, i)).random(_UNIFORMS, dtype=np.float32) for i in index.tolist()]
    return torch.from_numpy(np.stack(rows))


def _ink(
    glyphs: Float[Tensor, "n 8 8"], u: Float[Tensor, "n 4"], angle: Int64[Tensor, " n"]
) -> Float[Tensor, "n 1 32 32"]:
    low, high = torch.tensor(ANGLES).T
    a = torch.deg2rad(torch.lerp(low[angle], high[angle], u[:, 0]))
    size = SIZE[0] + (SIZE[1] - SIZE[0]) * u[:, 1]
    # The frame's corners may leave the canvas, its inscribed circle may not: digits seldom have ink in their corners.
    room = 1 - size / _CANVAS
    x, y = room * (2 * u[:, 2] - 1), room * (2 * u[:, 3] - 1)
    # grid_sample asks where in the glyph a pixel of the canvas comes from: the inverse of rotate, scale, shift.
    scale = _CANVAS / size
    cos, sin = scale * a.cos(), scale * a.sin()
    theta = torch.stack([cos, -sin, sin * y - cos * x, sin, cos, -sin * x - cos * y], 1).view(-1, 2, 3)
    grid = F.affine_grid(theta, [len(glyphs), 1, _CANVAS, _CANVAS], align_corners=False)
    smooth = F.interpolate(glyphs[:, None], scale_factor=4, mode="bicubic", align_corners=False)
    ink = F.grid_sample(smooth, grid, align_corners=False)
    return ((ink - 0.3) / 0.5).clamp(0, 1)  # strokes with edges, not clouds


def _texture(
    u: Float[Tensor, "n 4"], noise: Float[Tensor, "n 49"], style: Int64[Tensor, " n"]
) -> Float[Tensor, "n 1 32 32"]:
    """How far each pixel of the ground is from its first colour to its second."""
    turn, frequency, phase, depth = (column.view(-1, 1, 1) for column in u.T)
    axis = (torch.arange(_CANVAS) + 0.5) / _CANVAS - 0.5
    y, x = axis[:, None], axis[None, :]
    cos, sin = (2 * math.pi * turn).cos(), (2 * math.pi * turn).sin()
    p, q = x * cos + y * sin, y * cos - x * sin
    wave = 2 * math.pi * (2 + 3 * frequency)  # 2 to 5 periods across the canvas
    along, across = (wave * p + 2 * math.pi * phase).sin(), (wave * q).sin()
    stripes, checks = (2 * along).clamp(-1, 1), (3 * along * across).clamp(-1, 1)
    clouds = F.interpolate(2 * noise.view(-1, 1, 7, 7) - 1, (_CANVAS, _CANVAS), mode="bicubic")[:, 0].clamp(-1, 1)
    every = torch.stack([1.4 * p, stripes, checks, clouds], 1)
    return (0.5 + 0.5 * (0.5 + 0.5 * depth) * every[torch.arange(len(u)), style])[:, None]


def _colours(u: Float[Tensor, "n 5"]) -> tuple[Tensor, ...]:
    """Front, back and the back's second colour, n x 3 x 1 x 1 each: of any hue, and the front the brightest."""
    hue = 2 * math.pi * (u[:, :3, None] + torch.arange(3) / 3)
    tint = 0.25 * hue.cos()  # (n, 3 colours, rgb)
    tint = tint - (tint * _LUMINANCE).sum(-1, keepdim=True)
    light = torch.stack([0.75 + 0.15 * u[:, 3], 0.12 + 0.2 * u[:, 4], 0.28 + 0.2 * u[:, 4]], 1)
    colours = (light[:, :, None] + tint).clamp(0, 1)
    return tuple(colour[:, :, None, None] for colour in colours.unbind(1))


CONTRAST = 40  # of 255, mean over colours: about half of the faintest digit's


class MaskedDigits(NamedTuple):
    digits: Digits
    grounds: UInt8[Tensor, "n 3 32 32"]  # the same canvases without a digit
    masks: UInt8[Tensor, "n 32 32"]  # 0 for the ground, 1 + digit on the ink


def masked_digits(*, seed: int = 0) -> MaskedDigits:
    """All 1,797 of `canvas_digits`, in the source's order.

    >>> found = masked_digits()
    >>> found.masks.shape, int(found.masks.max())
    (torch.Size([1797, 32, 32]), 10)
    """
    digits = canvas_digits("all", seed=seed)
    n = len(digits.labels)
    grounds = place(torch.zeros(n, 8, 8), digits.labels, torch.arange(n), seed=seed).images
    ink = (digits.images.float() - grounds).abs().mean(1) > CONTRAST
    return MaskedDigits(digits, grounds, (ink * (1 + digits.labels).view(-1, 1, 1)).to(torch.uint8))
