"""Activation checkpointing runs a function twice: in the forward pass, and again in the backward pass.

torch has one frame for both runs.  Its hooks for saved tensors hold the frame in the first run, and a reference to it
in the second.  So we can tell that the k-th call of the second run repeats the k-th call of the first.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

import torch
from torch.utils.checkpoint import _CheckpointFrame

# torch 2.6 and 2.7 do not tell which hooks are active.  There a repeated call is refused.
_active_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: None)

# frame -> caller -> the values given to its calls, in order;  hook of a second run -> caller -> calls repeated so far
_given: "WeakKeyDictionary[Any, WeakKeyDictionary[Any, list[Any]]]" = WeakKeyDictionary()
_repeated: "WeakKeyDictionary[Any, WeakKeyDictionary[Any, int]]" = WeakKeyDictionary()


T = TypeVar("T")


def same_again(caller: object, fresh: Callable[[], T]) -> T:
    """`fresh()`.  In the second run: the value that the same call got in the first run."""
    hooks = _active_hooks(True)
    frame = None if hooks is None else _frame(hooks[0])
    if torch._C._current_graph_task_id() == -1:  # not within a backward pass
        value = fresh()
        if frame is not None:
            _given.setdefault(frame, WeakKeyDictionary()).setdefault(caller, []).append(value)
        return value
    calls = None if frame is None else _given.get(frame)
    given = [] if calls is None else calls.get(caller, [])
    counts = WeakKeyDictionary() if hooks is None else _repeated.setdefault(hooks[0], WeakKeyDictionary())
    place = counts.get(caller, 0)
    if place >= len(given):
        raise RuntimeError(
            f"{type(caller).__name__} was called in a backward pass, and this call repeats none of the forward pass. "
            "Activation checkpointing works with use_reentrant=False, not nested and without other hooks for saved "
            "tensors inside; otherwise keep the loss outside of the checkpointed function"
        )
    counts[caller] = place + 1
    again: T = given[place]
    return again


def _frame(hook: Callable[..., Any]) -> _CheckpointFrame | None:
    """The frame of the checkpoint that made this hook; None for other hooks, such as those that save to the host."""
    for cell in getattr(inspect.unwrap(hook), "__closure__", None) or ():
        held = cell.cell_contents
        held = held() if isinstance(held, ref) else held
        if isinstance(held, _CheckpointFrame):
            return held
    return None
