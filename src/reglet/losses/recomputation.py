"""Under activation checkpointing a function runs twice: in the forward pass, and again within the backward pass.

torch keeps one frame for both: its hooks, which save tensors, hold the frame itself in the first run and a reference to
it in the second.  So the k-th call of the second run is the k-th of the first, whatever numbers it sees.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

import torch
from torch.utils.checkpoint import _CheckpointFrame

# torch 2.6 and 2.7 do not say which hooks are active.  A repeated call is then refused, as under other hooks.
_active_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: None)

# frame -> caller -> what its calls were given, in order;  hook of one second run -> caller -> how many it has repeated
_given: "WeakKeyDictionary[Any, WeakKeyDictionary[Any, list[Any]]]" = WeakKeyDictionary()
_repeated: "WeakKeyDictionary[Any, WeakKeyDictionary[Any, int]]" = WeakKeyDictionary()


T = TypeVar("T")


def same_again(caller: object, fresh: Callable[[], T]) -> T:
    """`fresh()`; in the second run, what the call that is repeated was given."""
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
            f"{type(caller).__name__} was called in a backward pass, and not to repeat a call of the forward pass. "
            "Activation checkpointing works with use_reentrant=False, not nested and without other hooks for saved "
            "tensors inside; otherwise keep the loss outside of the checkpointed function"
        )
    counts[caller] = place + 1
    again: T = given[place]
    return again


def _frame(hook: Callable[..., Any]) -> _CheckpointFrame | None:
    """That of the checkpoint whose hook this is; None for other hooks, such as those that save to the host."""
    for cell in getattr(inspect.unwrap(hook), "__closure__", None) or ():
        held = cell.cell_contents
        held = held() if isinstance(held, ref) else held
        if isinstance(held, _CheckpointFrame):
            return held
    return None
