"""Feature maps as tokens, without moving them: layouts, receptive windows, and a few tokens of many."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

Grid = tuple[int, ...]  # () for vectors, (t,) for sequences, (h, w), (d, h, w)


@dataclass(frozen=True)
class Layout:
    """Where a tensor has its batch and its channels; all other axes are the grid.

    channel_dim: None takes the last axis of (B, C) and (B, N, C), and axis 1 of (B, C, H, W) and (B, C, D, H, W).
        Say 1 for (B, C, L) of 1-D convolutions, -1 for the (B, H, W, C) of Swin.
    batch_dim: 1 for the (N, B, C) of nn.Transformer and nn.LSTM; channel_dim is counted with the batch in front.
    skip_tokens: so many tokens at the start of a sequence (class token, registers) are left out.
    """

    channel_dim: int | None = None
    batch_dim: int = 0
    skip_tokens: int = 0

    def tokens(self, x: Float[Tensor, "..."]) -> tuple[Float[Tensor, "b t c"], Grid]:
        """A view (B, N, C), and the grid whose N points the tokens are."""
        if x.ndim < 2 or x.ndim > 5:
            raise ValueError(f"expected (B, C), (B, N, C), (B, C, H, W) or (B, C, D, H, W), got {tuple(x.shape)}")
        x = x.movedim(self.batch_dim, 0)
        x = x.movedim(self._channel_dim(x), -1)
        grid = tuple(x.shape[1:-1])
        tokens = x.flatten(1, -2) if grid else x.unsqueeze(1)
        if len(grid) == 1 and self.skip_tokens:
            tokens, grid = tokens[:, self.skip_tokens :], (grid[0] - self.skip_tokens,)
        if 0 in tokens.shape:
            raise ValueError(f"no tokens in {tuple(x.shape)} after skip_tokens={self.skip_tokens}")
        return tokens, grid

    def _channel_dim(self, x: Tensor) -> int:
        if self.channel_dim is not None:
            if self.channel_dim % x.ndim == 0 or not -x.ndim <= self.channel_dim < x.ndim:
                raise ValueError(f"channel_dim={self.channel_dim} is not a channel axis of {tuple(x.shape)}")
            return self.channel_dim
        if x.ndim < 4:
            return -1
        if x.shape[1:-2] == x.shape[2:-1] and x.shape[-1] != x.shape[-2]:
            raise ValueError(
                f"{tuple(x.shape)} looks channels-last. Say channel_dim=-1 if it is, channel_dim=1 if it is not"
            )
        return 1


def windows(source: Grid, target: Grid) -> Int[Tensor, "t r"] | None:
    """For each point of `target` the r points of `source` in its window, flat; None if windows differ in size.

    The windows are those of adaptive average pooling: blocks where an axis shrinks by a whole factor, the one point
    underneath where it grows by one.
    """
    flat = torch.zeros(1, 1, dtype=torch.int64)
    for a, b in zip(source, target, strict=True):
        if a % b == 0:
            axis = torch.arange(a).view(b, a // b)
        elif b % a == 0:
            axis = torch.arange(a).repeat_interleave(b // a)[:, None]
        else:
            return None
        flat = (flat[:, None, :, None] * a + axis[None, :, None, :]).flatten(2, 3).flatten(0, 1)
    return flat


def onto(x: Float[Tensor, "b s c"], source: Grid, target: Grid) -> Float[Tensor, "b t c"]:
    """All tokens of the grid `source`, averaged over the windows of the grid `target`."""
    if source == target:
        return x
    pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[len(source)]
    maps: Tensor = pool(x.transpose(1, 2).unflatten(2, source), target)  # type: ignore[arg-type]
    return maps.flatten(2).transpose(1, 2)


def points(grid: Grid) -> int:
    return math.prod(grid)


def common_grids(x: Grid, y: Grid) -> tuple[Grid, Grid]:
    """The grids of input and output with equally many axes, if there is one way to lay them over each other."""
    if len(x) == len(y):
        return x, y
    if not y:
        return x, (1,) * len(x)
    if points(x) == points(y):  # a map and its row-major sequence
        return (points(x),), (points(y),)
    raise ValueError(f"cannot tell which tokens of a grid {x} belong to which of a grid {y}; choose other blocks")


def gather(tokens: Float[Tensor, "b t c"], index: Int[Tensor, "b_or_1 n"]) -> Float[Tensor, "b n c"]:
    """The tokens at `index`: one row of indices for the whole batch, or one per sample."""
    b, _, c = tokens.shape
    if channels_first(tokens):  # along the contiguous axis, on the CPU ten times faster than index_select
        return tokens.transpose(1, 2).gather(2, index[:, None, :].expand(b, c, -1)).transpose(1, 2).contiguous()
    if len(index) == 1:
        return tokens.index_select(1, index[0])
    return tokens.gather(1, index[:, :, None].expand(-1, -1, c))


def pick(tokens: Float[Tensor, "b t c"], index: Int[Tensor, "b_or_1 n"]) -> Float[Tensor, "b n c"]:
    """`gather` in operations whose gradient needs no values of `tokens`, so that these may be overwritten later."""
    if len(index) == 1:
        return tokens.index_select(1, index[0])
    return tokens[torch.arange(len(tokens), device=tokens.device)[:, None], index]


def add(tokens: Float[Tensor, "b t c"], index: Int[Tensor, "b_or_1 n"], rows: Float[Tensor, "b n c"]) -> None:
    """The transpose of `gather`, in place: `rows` are added to the tokens at `index`."""
    b, _, c = tokens.shape
    if channels_first(tokens):
        tokens.transpose(1, 2).scatter_add_(2, index[:, None, :].expand(b, c, -1), rows.transpose(1, 2))
    elif len(index) == 1:
        tokens.index_add_(1, index[0], rows)
    else:
        tokens.scatter_add_(1, index[:, :, None].expand(-1, -1, c), rows)


def channels_first(tokens: Float[Tensor, "b t c"]) -> bool:
    """Whether these tokens are a view of a map whose channels come before its grid in memory."""
    return tokens.stride(2) != 1 and tokens.stride(1) == 1
