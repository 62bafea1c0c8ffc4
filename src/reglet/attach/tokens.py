"""Feature maps as tokens, without copying them: layouts, receptive windows, and some tokens of many."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from reglet.constants import kept_on_device

Grid = tuple[int, ...]  # () for vectors, (t,) for sequences, (h, w), (d, h, w)
Places = Int[Tensor, "b_or_1 n"]  # one row for the whole batch, or one for each sample; no place twice in a row


@dataclass(frozen=True)
class Layout:
    """Which axes of a tensor are the batch and the channels.  All other axes are the grid.

    channel_dim: None takes the last axis of (B, C) and (B, N, C), and axis 1 of (B, C, H, W) and (B, C, D, H, W).
        Say 1 for (B, C, L) of 1-D convolutions, -1 for the (B, H, W, C) of Swin.
    batch_dim: 1 for the (N, B, C) of nn.Transformer and nn.LSTM; channel_dim is counted with the batch in front.
    skip_tokens: the number of tokens at the start of a sequence (class token, registers) that are left out.
    grid: for a sequence, "square" if its tokens are the patches of a square image, row by row, or "line".  It is needed
        only if sequences of different lengths are compared.

    >>> tokens, grid = Layout().tokens(torch.zeros(2, 8, 5, 5))
    >>> tokens.shape, grid
    (torch.Size([2, 25, 8]), (5, 5))
    """

    channel_dim: int | None = None
    batch_dim: int = 0
    skip_tokens: int = 0
    grid: Literal["line", "square"] | None = None

    def __post_init__(self) -> None:
        for name in ("channel_dim", "batch_dim", "skip_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, int) or (value is None and name == "channel_dim")):
                raise TypeError(f"{name} must be a whole number, got {value!r}")
        if self.skip_tokens < 0:
            raise ValueError(f"skip_tokens cannot be negative, got {self.skip_tokens}")
        if self.grid not in (None, "line", "square"):
            raise ValueError(f"grid is 'line' or 'square', got {self.grid!r}")

    def tokens(self, x: Float[Tensor, "..."]) -> tuple[Float[Tensor, "b t c"], Grid]:
        """A view (B, N, C), and the grid of the N tokens."""
        x = self.batch_first(x)
        x = x.movedim(self._channel_dim(x), -1)
        grid = tuple(x.shape[1:-1])
        tokens = x.flatten(1, -2) if grid else x.unsqueeze(1)
        if len(grid) == 1 and self.skip_tokens:
            tokens, grid = tokens[:, self.skip_tokens :], (grid[0] - self.skip_tokens,)
        if 0 in tokens.shape:
            raise ValueError(f"no tokens in {tuple(x.shape)} after skip_tokens={self.skip_tokens}")
        if len(grid) == 1 and self.grid == "square":
            side = math.isqrt(grid[0])
            if side * side != grid[0]:
                raise ValueError(f"grid='square', but {grid[0]} tokens fill no square; skip_tokens= leaves some out")
            grid = (side, side)
        return tokens, grid

    def first_token(self, x: Float[Tensor, "..."]) -> Float[Tensor, "b c"]:
        """The class token of a sequence."""
        x = self.batch_first(x)
        if x.ndim != 3:
            raise ValueError(f"on='class' takes the first token of a sequence (B, N, C), got {tuple(x.shape)}")
        return x[:, 0]

    def batch_first(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if x.ndim < 2 or x.ndim > 5:
            raise ValueError(f"expected (B, C), (B, N, C), (B, C, H, W) or (B, C, D, H, W), got {tuple(x.shape)}")
        if not -x.ndim <= self.batch_dim < x.ndim:
            raise ValueError(f"batch_dim={self.batch_dim} is not an axis of {tuple(x.shape)}")
        return x.movedim(self.batch_dim, 0)

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


def has_equal_windows(source: Grid, target: Grid) -> bool:
    """Whether `windows` exists: every axis shrinks or grows by a whole factor."""
    return all(a % b == 0 or b % a == 0 for a, b in zip(source, target, strict=True))


@kept_on_device
def windows(source: Grid, target: Grid, *, device: torch.device) -> Int[Tensor, "t r"]:
    """For each point of `target`, the numbers of the r points of `source` in its window.

    The windows are those of adaptive average pooling: a block if an axis shrinks by a whole factor, one point if it
    grows by a whole factor.
    """
    flat = torch.zeros(1, 1, dtype=torch.int64, device=device)
    for a, b in zip(source, target, strict=True):
        axis = torch.arange(a, device=device)
        axis = axis.view(b, a // b) if a % b == 0 else axis.repeat_interleave(b // a)[:, None]
        flat = (flat[:, None, :, None] * a + axis[None, :, None, :]).flatten(2, 3).flatten(0, 1)
    return flat


def average_onto(x: Float[Tensor, "b s c"], source: Grid, target: Grid) -> Float[Tensor, "b t c"]:
    """All tokens of the grid `source`, averaged over the windows of the grid `target`."""
    if source == target:
        return x
    pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[len(source)]
    maps: Tensor = pool(x.transpose(1, 2).unflatten(2, source), target)  # type: ignore[arg-type]
    return maps.flatten(2).transpose(1, 2)


def points(grid: Grid) -> int:
    return math.prod(grid)


def common_grids(x: Grid, y: Grid) -> tuple[Grid, Grid]:
    """The grids of input and output with the same number of axes.  Raise if it is unclear how they correspond."""
    if len(x) == len(y):
        return x, y
    if not y:
        return x, (1,) * len(x)
    if points(x) == points(y):  # a map and its row-major sequence
        return (points(x),), (points(y),)
    raise ValueError(f"cannot tell which tokens of a grid {x} belong to which of a grid {y}; choose other blocks")


def meeting_grids(a: Grid, b: Grid) -> tuple[Grid, Grid, Grid]:
    """Both grids with the same number of axes, and the grid that both are averaged onto: the smaller along each axis.

    A sequence that is compared with a map of another size is taken as a map of the same proportions.

    >>> meeting_grids((16, 8), (8, 8))
    ((16, 8), (8, 8), (8, 8))
    >>> meeting_grids((256,), (8, 8))
    ((16, 16), (8, 8), (8, 8))
    """
    if len(a) < len(b):
        b, a, target = meeting_grids(b, a)
        return a, b, target
    if len(a) == 2 and len(b) == 1 and points(a) != b[0]:
        rows = math.isqrt(b[0] * a[0] // a[1])
        if rows and rows * rows * a[1] == b[0] * a[0]:
            b = (rows, b[0] // rows)
    a, b = common_grids(a, b)
    return a, b, tuple(map(min, a, b))


def tokens_at(tokens: Float[Tensor, "b t c"], places: Places) -> Float[Tensor, "b n c"]:
    """The tokens at `places`.  The gradient does not need `tokens`, so they may be overwritten later."""
    if torch.compiler.is_compiling():  # a compiler finds a fast way itself, and cannot trace `_Take`
        if len(places) == 1:
            return tokens.index_select(1, places[0])
        return tokens[torch.arange(len(tokens), device=tokens.device)[:, None], places]
    chosen: Tensor = _Take.apply(tokens, places)
    return chosen


class _Take(torch.autograd.Function):
    """`take` with a gradient.  torch's `gather` keeps all tokens for backward; `index_select` is six times slower on
    maps."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, places: Tensor) -> Tensor:
        ctx.places, ctx.count, ctx.transposed = places, tokens.shape[1], channels_first(tokens)
        return take(tokens, places)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        whole: Tensor = _Put.apply(g, ctx.places, ctx.count, ctx.transposed)
        return whole, None


class _Put(torch.autograd.Function):
    """The transpose of `_Take`: rows in their places, zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, count: int, transposed: bool) -> Tensor:
        ctx.places = places
        b, _, c = rows.shape
        if transposed:  # the gradient of a map has the layout of the map
            index = places[:, None, :].expand(b, c, -1)
            return rows.new_zeros(b, c, count).scatter_(2, index, rows.transpose(1, 2)).transpose(1, 2)
        whole = rows.new_zeros(b, count, c)
        return whole.index_add_(1, places[0], rows) if len(places) == 1 else whole.scatter_(1, _wide(places, c), rows)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        rows: Tensor = _Take.apply(g, ctx.places)
        return rows, None, None, None


def take(tokens: Float[Tensor, "b t c"], places: Places) -> Float[Tensor, "b n c"]:
    """`tokens_at` without its special gradient."""
    b, _, c = tokens.shape
    if channels_first(tokens):  # along the contiguous axis
        index = places[:, None, :].expand(b, c, -1)
        return tokens.transpose(1, 2).gather(2, index).transpose(1, 2).contiguous()
    return tokens.index_select(1, places[0]) if len(places) == 1 else tokens.gather(1, _wide(places, c))


def _wide(places: Places, c: int) -> Int[Tensor, "b n c"]:
    return places[:, :, None].expand(-1, -1, c)


def channels_first(tokens: Float[Tensor, "b t c"]) -> bool:
    """Whether these tokens are a view of a map whose channels come before its grid in memory."""
    return tokens.stride(2) != 1 and tokens.stride(1) == 1
