"""The keys of a part, such as loss.slices=, for `--help`: read from the signature of what takes them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from reglet.engine.arguments import in_words


def nested(makers: Mapping[str, Callable[..., Any]]) -> list[str]:
    """A line for each argument that a word can give: key, default, kind.

    >>> def make(*, slices: int = 64, generator: object = None) -> None: ...
    >>> nested({"loss": make})
    ['loss.*, of make', '  loss.slices=64               a whole number']
    """
    lines = []
    for room, make in makers.items():
        found = []
        for name, p in inspect.signature(make).parameters.items():
            kind = in_words(p.annotation)
            if p.kind is p.KEYWORD_ONLY and kind and name not in GIVEN:
                default = "" if p.default is p.empty else _text(p.default)
                found.append(f"  {f'{room}.{name}={default}':<28} {kind}")
        if found:
            lines += [f"{room}.*, of {make.__name__}", *found]
    return lines


# What the command gives by keys of its own, or by itself.
GIVEN = frozenset({"size", "in_channels", "gather", "classes", "num_classes", "generator", "seed", "channel_dim"})


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
