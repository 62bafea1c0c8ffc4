"""Antialiased resampling along one axis, as a small matrix for each sample.

The filter is that of torch's `interpolate(antialias=True)`.  A crop of length L becomes `out` pixels.  The centre of
output pixel o is (o + 1/2) L / out.  Input pixel p has the weight k(((p + 1/2) - centre) / max(L / out, 1)), and the
weights of an output pixel sum to 1.  k is the triangle ("bilinear"), Keys' cubic with a = -1/2 ("bicubic") or Pillow's
windowed sinc with three lobes ("lanczos").  Pixels outside the crop have no weight, because the crop comes first.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

Interpolation = Literal["bilinear", "bicubic", "lanczos"]


def matrices(
    start: Int64[Tensor, " n"],
    length: Int64[Tensor, " n"],
    *,
    size: int,
    out: int,
    interpolation: Interpolation = "bilinear",
    reverse: Bool[Tensor, " n"] | None = None,
    gain: float = 1.0,
) -> Float[Tensor, "n out size"]:
    """The matrix from `size` pixels, whose crop is [start, start + length), to `out` pixels.  Rows sum to `gain`.

    reverse: the samples whose output runs backwards, which flips them at no cost.
    """
    # Dividing whole numbers would give torch's default dtype, which is bfloat16 in bf16-true.
    start, length = (each if each.is_floating_point() else each.float() for each in (start, length))
    steps = length[:, None] / out
    stretch = steps.clamp(min=1)
    centre = (torch.arange(out, dtype=torch.float32, device=start.device) + 0.5) * steps
    if reverse is not None:
        centre = torch.where(reverse[:, None], centre.flip(1), centre)
    pixel = torch.arange(size, device=start.device) - start[:, None]
    outside = (pixel < 0) | (pixel >= length[:, None])
    position = (pixel + 0.5).masked_fill_(outside, torch.inf)
    distance = (position / stretch)[:, None, :] - (centre / stretch)[:, :, None]
    weight = {"bilinear": _triangle, "bicubic": _cubic, "lanczos": _lanczos}[interpolation](distance)
    return weight.mul_(gain / weight.sum(2, keepdim=True))


# All return -k, which saves a pass: a row is divided by its sum, so the sign cancels.


def _triangle(t: Tensor) -> Tensor:
    """k = max(1 - |t|, 0).  In place."""
    return t.abs_().clamp_(max=1).sub_(1)


def _cubic(t: Tensor) -> Tensor:
    """k = 1 - 5/2 t^2 + 3/2 t^3 for |t| up to 1, and -1/2 (t - 1) (2 - t)^2 up to 2.  Both are 0 at |t| = 1."""
    t = t.abs_()
    s = t.clamp(max=1)
    inner = s.mul(1.5).sub_(1).mul_(s).sub_(1).mul_(1 - s)
    u = t.clamp_(1, 2).sub_(1)
    rest = 1 - u
    return inner.add_(rest.mul_(rest).mul_(u), alpha=0.5)


def _lanczos(t: Tensor) -> Tensor:
    """k = sinc(t) sinc(t / 3) for |t| up to 3, with sinc(t) = sin(pi t) / (pi t)."""
    t = t.clamp_(-3, 3)
    return torch.sinc(t).mul_(torch.sinc(t / 3)).neg_()
