"""Collectives that carry gradients.  The only file that imports torch.distributed.

The convention, under which W ranks train as one process does on the whole batch: every rank computes a loss of the
*global* batch, and DDP averages the parameter gradients over ranks.  Then the gradient of one rank's share must be
the sum over ranks of what each rank's loss asks of it; the average over ranks divides the W copies out again.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def gather(x: Tensor, dim: int = 0) -> Tensor:
    """All ranks' `x`, concatenated along `dim` in the order of ranks; they may differ in size there, and only there.

    One process: `x` itself.
    """
    if world_size() == 1:
        return x
    x = x.movedim(dim, 0).contiguous()
    out: Tensor = _Gather.apply(x, _sizes(x))
    return out.movedim(0, dim)


def sum_over_ranks(x: Tensor) -> Tensor:
    """sum_r x_r, the same tensor on every rank."""
    if world_size() == 1:
        return x
    out: Tensor = _Sum.apply(x)
    return out


def _sizes(x: Tensor) -> list[int]:
    """Rows on each rank.  Refuses, on every rank alike, tensors that could not be concatenated."""
    codes = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
    if x.ndim > 6 or x.dtype not in codes:
        raise ValueError(
            f"gather takes floating-point tensors of up to 6 axes, got {x.dtype} with shape {tuple(x.shape)}"
        )
    mine = torch.zeros(9, dtype=torch.int64, device=x.device)
    header = [codes[x.dtype], x.ndim, *x.shape]
    mine[: len(header)] = torch.tensor(header)
    everyone = [torch.empty_like(mine) for _ in range(world_size())]
    dist.all_gather(everyone, mine)
    headers = [tuple(h.tolist()) for h in everyone]
    if len({h[:2] + h[3:] for h in headers}) > 1:
        shapes = ", ".join(f"rank {r}: {h[2 : 2 + h[1]]}" for r, h in enumerate(headers))
        raise ValueError(f"ranks may differ in the number of samples only, and not in dtype; got {shapes}")
    return [h[2] for h in headers]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        most = max(sizes)
        padded = torch.cat([x, x.new_zeros(most - len(x), *x.shape[1:])]) if len(x) < most else x
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g.split(ctx.sizes)[rank()], None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g
