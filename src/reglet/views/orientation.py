"""Flips, rotations by any angle (interpolated) and quarter turns (exact)."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from reglet import check


def hflip(x: Shaped[Tensor, "n c h w"], flip: Bool[Tensor, " n"]) -> Shaped[Tensor, "n c h w"]:
    """Mirrors the images for which `flip` is True, as torchvision's `horizontal_flip`.

    >>> hflip(torch.tensor([1.0, 2.0, 3.0]).view(1, 1, 1, 3), torch.tensor([True])).flatten().tolist()
    [3.0, 2.0, 1.0]
    """
    check.images(x, floating=False)
    check.one_each(x, flip=flip)
    return torch.where(flip.to(x.device)[:, None, None, None], x.flip(3), x)


def rotate(x: Float[Tensor, "n c h w"], degrees: Float[Tensor, " n"], *, fill: float = 0.0) -> Float[Tensor, "n c h w"]:
    """Turns each image by its own angle, counter-clockwise, in a frame of the same size.

    Equals torchvision's `rotate(interpolation=bilinear)` on floats.  What comes from outside the frame is `fill`, mixed
    with the image at the border.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).view(1, 1, 2, 2)
    >>> rotate(x, torch.tensor([90.0])).squeeze().round().tolist()
    [[2.0, 4.0], [1.0, 3.0]]
    """
    check.images(x)
    check.one_each(x, degrees=degrees)
    check.finite(fill=fill)
    height, width = x.shape[2:]
    angle = torch.deg2rad(degrees.to(x))
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    across = torch.arange(width, device=x.device, dtype=x.dtype) - (width - 1) / 2
    down = (torch.arange(height, device=x.device, dtype=x.dtype) - (height - 1) / 2)[:, None]
    source = torch.stack([(cos * across - sin * down) * 2 / width, (sin * across + cos * down) * 2 / height], dim=3)
    return F.grid_sample(x - fill, source, mode="bilinear", padding_mode="zeros", align_corners=False) + fill


def quarter_turn(x: Shaped[Tensor, "n c h w"], turns: Int64[Tensor, " n"]) -> Shaped[Tensor, "n c h w"]:
    """Turns each image by its own number of quarters, counter-clockwise, bit-exact.

    >>> quarter_turn(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).view(1, 1, 2, 2), torch.tensor([1])).squeeze().tolist()
    [[2.0, 4.0], [1.0, 3.0]]
    """
    check.images(x, floating=False)
    check.one_each(x, turns=turns)
    turns = turns % 4
    if x.shape[2] != x.shape[3] and bool((turns % 2).any()):
        raise ValueError(f"odd quarter turns need square images, got {x.shape[2]} x {x.shape[3]}")
    out = x.clone()
    for k in (1, 2, 3):
        rows = (turns == k).nonzero()[:, 0].to(x.device)
        if len(rows):
            out.index_copy_(0, rows, torch.rot90(x.index_select(0, rows), k, dims=(2, 3)))
    return out
