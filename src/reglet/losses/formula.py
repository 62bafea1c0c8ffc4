"""What the public functions of this room do around their maths.  `OnViews` does the same for the losses."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from torch import Tensor

from reglet import check
from reglet.precision import no_autocast, of_one_dtype

F = TypeVar("F", bound=Callable[..., Tensor | tuple[Tensor, Tensor]])


def formula(*axes: str) -> Callable[[F], F]:
    """A decorator.  It checks the axes of each tensor and that n is at least 2, computes in float32 at least, and
    refuses a value that overflows.

    axes: the axes of each tensor, such as "n d"; one entry serves all of `*views`.
    """

    def around(function: F) -> F:
        parameters = signature(function).parameters.values()
        names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

        @wraps(function)
        def call(*given: Any, **arguments: Any) -> Any:
            given = (*given, *(arguments.pop(name) for name in names[len(given) :] if name in arguments))
            labels = names or [f"views[{i}]" for i in range(max(2, len(given)))]
            if len(given) != len(labels):
                raise TypeError(f"{function.__name__} takes {len(labels)} tensors by position, got {len(given)}")
            every = axes if names else axes * len(given)
            check.tensors(every, **dict(zip(labels, given, strict=True)))
            if (n := given[0].shape[every[0].split().index("n")]) < 2:
                raise ValueError(f"{function.__name__} needs at least 2 samples, got {n}")
            with no_autocast(given[0]):
                value = function(*of_one_dtype(given), **arguments)
            parts = value if isinstance(value, tuple) else (value,)
            check.no_overflow(function.__name__, {f"value {i}": part for i, part in enumerate(parts)}, *given)
            return value

        return cast(F, call)

    return around
