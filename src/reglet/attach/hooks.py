"""Hooks that stay with the model they were put on, and what is saved inside them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class Hook:
    """A forward hook or pre-hook.  A deep copy or pickle of the model gets one that does nothing in its place:
    an EMA copy must not feed the attachment of the original, nor carry its tensors along.
    """

    def __init__(self, call: Callable[..., Any], *, owner: str) -> None:
        self.call, self.owner = call, owner

    def __call__(self, module: nn.Module, *args: Any) -> Any:
        if getattr(module, "_is_replica", False):
            raise RuntimeError("nn.DataParallel runs copies of a block in threads; use DistributedDataParallel instead")
        return self.call(module, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        # takes any arguments, returns None, and a pickle of the model loads where reglet is not installed
        return getattr, (nullcontext(), "__exit__")


def owners(module: nn.Module) -> set[str]:
    """Names of the attachments that have a hook on this module."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    return {hook.owner for hook in hooks if isinstance(hook, Hook)}


def refuse_compiled(model: nn.Module) -> None:
    """A compiled graph ignores hooks that come after it, silently."""
    for name, module in model.named_modules():
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            raise RuntimeError(
                f"{repr(name) if name else 'the model'} is compiled already, and a compiled graph ignores new hooks. "
                "Attach to the model first, then compile it."
            )


def recomputing() -> bool:
    """Whether a backward pass is running: then a forward is activation checkpointing, doing again what was seen."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def saved_as_they_are() -> AbstractContextManager[object]:
    """Tensors saved inside are kept, whatever surrounds this.

    Non-reentrant checkpointing counts what a region saves, and recomputes it in the same order.  A loss looks at each
    call of a block once and not again when the block is recomputed, so what it saves must not be counted.
    """
    return nullcontext() if torch.compiler.is_compiling() else saved_tensors_hooks(_itself, _itself)


def _itself(tensor: Tensor) -> Tensor:
    return tensor
