"""What a page cannot show, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Missing:
    """`why`: a sentence for the reader of the page."""

    why: str


def attempt(step: Callable[[], T]) -> T | Missing:
    """What `step` gives, or why it gives nothing: a page with a gap is better than none.

    >>> attempt(lambda: 1), attempt(lambda: {}["x"])
    (1, Missing(why="KeyError: 'x'"))
    """
    try:
        return step()
    except (ValueError, TypeError, LookupError, ImportError, OSError, RuntimeError) as error:
        lines = str(error).strip().splitlines()
        said = lines[0][:400] if lines else ""
        return Missing(said if isinstance(error, ValueError) and said else f"{type(error).__name__}: {said}")
