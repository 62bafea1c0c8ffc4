"""Words of a command line as arguments of a function.  A word that does not fit the signature is refused."""

import inspect
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from reglet.engine.config import Named, literal, unknown

Json = dict[str, Any]
NOT = object()  # the value does not fit


def arguments(make: Callable[..., Any], room: str, given: Json) -> Json:
    """The values of room.argument= words, as `make` takes them."""
    hints = {key: p.annotation for key, p in inspect.signature(make).parameters.items()}
    return {key: argument(f"{room}.{key}", value, hints.get(key, Any)) for key, value in given.items()}


def call(make: Callable[..., Any], config: Named, room: str, *parts: Any, **given: Any) -> Any:
    """Calls `make` with the arguments that the configuration has for `room`.  The error for an unknown argument names
    the closest one."""
    return call_with(make, room, config.of(room), *parts, **given)


def call_with(make: Callable[..., Any], room: str, options: Json, *parts: Any, **given: Any) -> Any:
    """The same with the arguments given in `options`."""
    allowed = {k for k, p in inspect.signature(make).parameters.items() if p.kind is p.KEYWORD_ONLY}
    for key in options:
        if key not in allowed:
            raise ValueError(unknown(f"{room}.{key}", {f"{room}.{name}" for name in allowed}))
    return make(*parts, **{**given, **arguments(make, room, options)})


def argument(key: str, value: Any, hint: Any) -> Any:
    """
    >>> argument("method.temperature", "0.04,0.07", tuple[float, float])
    (0.04, 0.07)
    >>> argument("loss.slices", "many", int | None)
    Traceback (most recent call last):
    ValueError: loss.slices is a whole number or none; got 'many'
    """
    if hint in (Any, inspect.Parameter.empty):
        return value
    for kind in _kinds(hint):
        if (found := _as(kind, value)) is not NOT:
            return found
    words = in_words(hint)
    raise ValueError(f"{key} is {words or 'an object, which is given in Python'}; got {value!r}")


def in_words(hint: Any) -> str:
    """Says what a word may be; "" if the argument cannot be given as a word."""
    return " or ".join(filter(None, map(_words, _kinds(hint))))


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _as(kind: Any, value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if get_origin(kind) is Literal:
        return next(
            (choice for choice in get_args(kind) if value in (choice, str(choice)) or str(value) == choice), NOT
        )
    if get_origin(kind) in (tuple, Sequence):
        return _several(kind, str(value).split(","))
    if kind is float:
        return value if number else NOT
    if kind is str:
        return NOT if value is None else str(value)
    return value if kind in (bool, int, NoneType) and type(value) is kind else NOT


def _several(kind: Any, texts: list[str]) -> Any:
    each = get_args(kind)
    if get_origin(kind) is Sequence:
        each = each * len(texts)
    if len(each) != len(texts):
        return NOT
    found = []
    for hint, text in zip(each, texts, strict=True):
        value = next((v for k in _kinds(hint) if (v := _as(k, literal(text))) is not NOT), NOT)
        if value is NOT:
            return NOT
        found.append(value)
    return tuple(found)


def _words(kind: Any) -> str:
    """Empty for what cannot be given as a word."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        return f"{len(get_args(kind))} numbers with a comma between them"
    if get_origin(kind) is Sequence:
        return "several with commas between them"
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "none"}
    return plain.get(kind, "")
