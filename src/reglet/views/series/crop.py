"""A stretch of each series, resampled to one length."""

import torch
from jaxtyping import Float
from torch import Tensor


def crop(x: Float[Tensor, "n c t"], box: Float[Tensor, "n 2"], *, length: int) -> Float[Tensor, "n c length"]:
    """The stretch (start, width) in shares, linearly interpolated at `length` places, its two ends among them.

    A width of 1 and length = t change nothing.

    >>> crop(torch.arange(5.0).view(1, 1, 5), torch.tensor([[1.0, 0.5]]), length=3).tolist()
    [[[2.0, 3.0, 4.0]]]
    """
    t = x.shape[2]
    start, width = box.to(x.device, x.dtype).unbind(1)
    span = width * (t - 1)
    steps = torch.linspace(0, 1, length, device=x.device, dtype=x.dtype)
    where = (start * (t - 1 - span))[:, None] + steps * span[:, None]
    left = where.floor().long().clamp(0, t - 1)
    right = (left + 1).clamp(max=t - 1)
    share = (where - left).clamp(0, 1)[:, None]
    a, b = (x.gather(2, i[:, None].expand(-1, x.shape[1], -1)) for i in (left, right))
    return a + share * (b - a)
