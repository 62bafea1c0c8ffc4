"""A stretch of time, or a band of neighbouring channels, without its values (SpecAugment, arXiv:1904.08779)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def mask_time(x: Float[Tensor, "n c t"], box: Float[Tensor, "n 2"]) -> Float[Tensor, "n c t"]:
    """Zero, which is the mean of standardised series, in the stretch (start, width) of every channel.

    >>> mask_time(torch.ones(1, 1, 4), torch.tensor([[1.0, 0.5]])).tolist()
    [[[1.0, 1.0, 0.0, 0.0]]]
    """
    return x.masked_fill(covered(box.to(x.device), x.shape[2])[:, None], 0.0)


def mask_channels(x: Float[Tensor, "n c t"], box: Float[Tensor, "n 2"]) -> Float[Tensor, "n c t"]:
    """Zero in the channels (start, width), at all times: a band of frequencies, where channels are those."""
    return x.masked_fill(covered(box.to(x.device), x.shape[1])[:, :, None], 0.0)


def covered(box: Float[Tensor, "n 2"], size: int) -> Bool[Tensor, "n size"]:
    """Which of `size` places lie in the box: round(width size) of them, never all."""
    start, width = box.double().unbind(1)
    count = (width * size).round().clamp(max=size - 1)
    first = (start * (size - count)).round()[:, None]
    place = torch.arange(size, device=box.device)
    return (place >= first) & (place < first + count[:, None])
