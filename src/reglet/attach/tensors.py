"""The first tensor of a block's input or output, which may be a tuple, list or dict."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def first_tensor(value: object) -> Tensor | None:
    """The first floating-point tensor in a nest of tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return next((t for t in map(first_tensor, inside) if t is not None), None)


def replace_first(value: Any, change: Callable[[Tensor], Tensor]) -> tuple[Any, bool]:
    """`value` with `change` applied to its first floating-point tensor, and whether there was one."""
    if isinstance(value, Tensor):
        return (change(value), True) if value.is_floating_point() else (value, False)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            changed, done = replace_first(inner, change)
            if done:
                other = value.copy() if hasattr(value, "copy") else dict(value)
                other[key] = changed
                return other, True
    if isinstance(value, tuple | list):
        for i, inner in enumerate(value):
            changed, done = replace_first(inner, change)
            if done:
                items = [*value[:i], changed, *value[i + 1 :]]
                return (type(value)(*items) if hasattr(value, "_fields") else type(value)(items)), True
    return value, False
