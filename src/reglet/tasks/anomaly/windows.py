"""Windows out of series, and an error for each point out of windows."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

AT_ONCE = 128  # windows that are scored together


def training_starts(lengths: Sequence[int], *, window: int) -> Int[Tensor, " w"]:
    """Where a window of series that stand one after another may begin, so that none reaches into the next series."""
    parts, begin = [], 0
    for length in lengths:
        parts.append(begin + torch.arange(length - window + 1))
        begin += length
    return torch.cat(parts)


def tiles(length: int, *, window: int) -> Int[Tensor, " w"]:
    """Windows side by side; the last one ends with the series, over some of the points of the one before."""
    return torch.arange(0, length, window).clamp(max=length - window)


def cut(points: Float[Tensor, "t c"], starts: Int[Tensor, " w"], *, window: int) -> Float[Tensor, "w window c"]:
    return points[starts[:, None] + torch.arange(window)]


@torch.no_grad()
def point_errors(
    reconstruct: Callable[[Tensor], Tensor], points: Float[Tensor, "t c"], *, window: int
) -> Float[Tensor, " t"]:
    """The mean over channels of the squared error with which each point is reconstructed, in its tile.

    A point in two tiles is scored in the first.
    """
    windows = cut(points, tiles(len(points), window=window), window=window)
    errors = torch.cat([(reconstruct(part) - part).square().mean(2) for part in windows.split(AT_ONCE)])
    rest = len(points) - window * (len(errors) - 1)
    return torch.cat([errors[:-1].flatten(), errors[-1, window - rest :]])
