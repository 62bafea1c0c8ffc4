"""Collectives that carry gradients.  The only file that imports torch.distributed.

W ranks should train like one process on the whole batch.  So every rank computes the loss of the *whole* batch, and DDP
averages the parameter gradients over ranks.  The gradient of a rank's embeddings is therefore the sum over the losses
of all ranks; DDP's average then divides by W.

`group` is a process group; None means all processes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    Group = dist.ProcessGroup | None
else:
    Group = Any  # a build of torch without distributed has no ProcessGroup

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_ERRORS = (ValueError, TypeError, FloatingPointError)
_AXES, _TEXT = 6, 400  # the most axes of a tensor, and the most bytes of an error message that are sent


def world_size(group: Group = None) -> int:
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def rank(group: Group = None) -> int:
    return dist.get_rank(group) if dist.is_available() and dist.is_initialized() else 0


def on_any_rank(*flags: bool) -> list[bool]:
    """Whether each flag is set on any rank.  Ranks exchange it on the CPU if they can, so that no device waits."""
    if world_size() == 1:
        return list(flags)
    counts = torch.tensor([float(flag) for flag in flags]).to(_device_of_messages(None))
    dist.all_reduce(counts)
    return [count > 0 for count in counts.tolist()]


@dataclass(frozen=True)
class Ranks:
    """The processes that hold one batch together, and how many samples each of them has."""

    counts: tuple[int, ...]
    group: Group = None

    @property
    def size(self) -> int:
        return len(self.counts)

    @property
    def samples(self) -> int:
        return sum(self.counts)

    @property
    def own(self) -> slice:
        """The place of this rank's samples in the whole batch."""
        me = rank(self.group) if self.size > 1 else 0
        first = sum(self.counts[:me])
        return slice(first, first + self.counts[me])

    def concat(self, x: Tensor, dim: int = 0) -> Tensor:
        """All ranks' `x` in one tensor, without a gradient."""
        return _concat(x.movedim(dim, 0), self).movedim(0, dim).contiguous() if self.size > 1 else x

    def sum(self, x: Tensor) -> Tensor:
        """sum_r x_r, without a gradient.  `x` is overwritten."""
        if self.size > 1:
            dist.all_reduce(x, group=self.group)
        return x


def agree(x: Tensor | Exception, *, dim: int = 0, group: Group = None) -> Ranks:
    """How many samples each rank has along `dim`.

    A rank with bad samples passes an error instead of a tensor.  Then every rank raises it, and none waits forever.
    All ranks also raise if they differ in more than the number of samples.  It costs one exchange of three kilobytes,
    on the CPU if the group can.
    """
    size = world_size(group)
    if isinstance(x, Tensor) and (x.dtype not in _DTYPES or x.ndim > _AXES):
        x = TypeError(f"ranks exchange floating-point tensors of up to {_AXES} axes, got {x.dtype}, {tuple(x.shape)}")
    if size == 1:
        if isinstance(x, Exception):
            raise x
        return Ranks((x.shape[dim],))
    if rank(group) < 0:
        raise ValueError("this process is not part of the group that was given to the loss")
    everyone = torch.empty(size, 3 + _AXES + _TEXT, dtype=torch.int64, device=_device_of_messages(group))
    dist.all_gather(list(everyone), _message(x, dim).to(everyone.device), group=group)
    said: list[list[int]] = everyone.tolist()
    for r, line in enumerate(said):
        if line[0]:
            text = bytes(line[3 + _AXES :]).rstrip(bytes(1)).decode(errors="replace")
            cause = x if isinstance(x, Exception) and r == rank(group) else None
            raise _ERRORS[line[0] - 1](f"rank {r}: {text}") from cause
    if len({tuple(line[1 : 3 + _AXES]) for line in said}) > 1:
        raise ValueError(
            "ranks may differ in the number of samples only, and not in dtype; got "
            + ", ".join(f"rank {r}: {_shape_in(line, dim)}" for r, line in enumerate(said))
        )
    return Ranks(tuple(line[3 + _AXES] for line in said), group)


def concat_over_ranks(x: Tensor, dim: int = 0, *, group: Group = None, ranks: Ranks | None = None) -> Tensor:
    """`x` of all ranks, concatenated along `dim` in the order of ranks.  Their sizes may differ only along `dim`.

    The gradient comes back by reduce-scatter: each rank receives the sum of all ranks' gradients for its own part.
    With one process, `x` itself is returned.  ranks: from an earlier `agree`.
    """
    ranks = agree(x, dim=dim, group=group) if ranks is None else ranks
    if ranks.size == 1:
        return x
    out: Tensor = _Concat.apply(x.movedim(dim, 0), ranks)
    return out.movedim(0, dim)


def sum_over_ranks(x: Tensor, *, group: Group = None) -> Tensor:
    """sum_r x_r, the same tensor on every rank."""
    if world_size(group) == 1:
        return x
    out: Tensor = _Sum.apply(x, group)
    return out


def _message(x: Tensor | Exception, dim: int) -> Tensor:
    """Kind of error, dtype, number of axes, shape with a 0 at `dim`; then the number of samples, or the error text."""
    out = torch.zeros(3 + _AXES + _TEXT, dtype=torch.int64)
    if isinstance(x, Exception):
        kind = next((i for i, one in enumerate(_ERRORS) if isinstance(x, one)), 0)
        text = str(x).encode()[:_TEXT]
        out[0] = 1 + kind
        out[3 + _AXES : 3 + _AXES + len(text)] = torch.tensor(list(text), dtype=torch.int64)
    else:
        shape = list(x.shape)
        samples, shape[dim] = shape[dim], 0
        out[1 : 3 + len(shape)] = torch.tensor([1 + _DTYPES.index(x.dtype), x.ndim, *shape])
        out[3 + _AXES] = samples
    return out


def _shape_in(message: list[int], dim: int) -> tuple[int, ...]:
    shape = message[3 : 3 + message[2]]
    shape[dim] = message[3 + _AXES]
    return tuple(shape)


def _device_of_messages(group: Group) -> torch.device:
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    on_cpu = accelerator is None or "cpu:" in dist.get_backend_config(group)
    return torch.device("cpu") if on_cpu or accelerator is None else accelerator


def _concat(x: Tensor, ranks: Ranks) -> Tensor:
    most = max(ranks.counts)
    if len(x) == most:
        padded = x.contiguous()
    else:
        padded = x.new_zeros(most, *x.shape[1:])
        padded[: len(x)] = x
    out = x.new_empty(ranks.size, *padded.shape)
    dist.all_gather(list(out), padded, group=ranks.group)
    if min(ranks.counts) == most:
        return out.flatten(0, 1)
    return torch.cat([part[:count] for part, count in zip(out, ranks.counts, strict=True)])


class _Concat(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return _concat(x, ranks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        ranks: Ranks = ctx.ranks
        most = max(ranks.counts)
        padded = g.new_zeros(ranks.size, most, *g.shape[1:])
        for place, part in zip(padded, g.split(ranks.counts), strict=True):
            place[: len(part)] = part
        own = torch.empty_like(padded[0])
        _reduce_scatter(own, padded.flatten(0, 1), group=ranks.group)
        return own[: ranks.counts[rank(ranks.group)]], None


def _reduce_scatter(own: Tensor, whole: Tensor, group: Group) -> None:
    newest = getattr(dist, "reduce_scatter_single", None)  # torch 2.13 renamed reduce_scatter_tensor
    (newest or dist.reduce_scatter_tensor)(own, whole, group=group)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        g = g.contiguous().clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None
