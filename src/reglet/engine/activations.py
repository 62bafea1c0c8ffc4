"""Activation checkpointing: blocks are computed twice.  It needs the memory of one block and a third more time."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from reglet.engine.shard import blocks


def checkpoint_activations(module: nn.Module) -> None:
    """Each block of `module` (see `blocks`) does not keep its activations, and computes them again in the backward
    pass.

    The gradient is the same: dropout is repeated, and the averages of batch norm move only the first time.  Names of
    weights stay the same.  What is attached to a whole block sees one call; what is attached inside would see two.
    """
    found = blocks(module)
    if not found:
        raise ValueError(
            f"checkpoint_activations: {type(module).__name__} has no Sequential or ModuleList of blocks of one class"
        )
    for block in found:
        block.__class__ = _forgetful(type(block))  # type: ignore[arg-type]  # a class is hashable


@cache
def _forgetful(kind: type[nn.Module]) -> type[nn.Module]:
    """A new class, not a new `forward` on each block: the copy of a block would call the `forward` of the original."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return kind.forward(self, *args, **kwargs)
        again: dict[str, Any] = {"context_fn": lambda: (nullcontext(), standing_averages(self))} if _norms(self) else {}
        return checkpoint(kind.forward, self, *args, use_reentrant=False, **again, **kwargs)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


@contextmanager
def standing_averages(block: nn.Module) -> Iterator[None]:
    """Batch norm does not change its averages and its count.  They are not switched off, because batch norm would then
    save other tensors than the first time, which torch refuses.
    """
    before = [(m, m.momentum, m.num_batches_tracked) for m in _norms(block)]
    try:
        for m, _, _ in before:
            m.momentum, m.num_batches_tracked = 0.0, None
        yield
    finally:
        for m, momentum, count in before:
            m.momentum, m.num_batches_tracked = momentum, count


def _norms(block: nn.Module) -> list[_BatchNorm]:
    return [m for m in block.modules() if isinstance(m, _BatchNorm)]
