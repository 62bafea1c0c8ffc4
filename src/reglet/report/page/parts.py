"""What sections are made of, as plain values.  parts.html shows each of them; Jinja2 escapes every name and number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from reglet.report.gather import Missing, RunData

Json = dict[str, Any]
Part = TypeVar("Part")


class Gap(NamedTuple):
    """What is not shown, and why."""

    what: str
    why: str


class Table(NamedTuple):
    """The first cell of a row names it."""

    label: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]


class Chart(NamedTuple):
    """The place of a figure.  title: what a screen reader says, and the reader sees."""

    key: str
    title: str
    says: str
    height: int


@dataclass(frozen=True)
class Section:
    """key: its address on the page, and the name of its template.  link: what the navigation calls it.

    shown: what the template takes.
    """

    key: str
    link: str
    title: str
    shown: Json = field(default_factory=dict)


class Figures:
    """The figures of the page by number."""

    def __init__(self) -> None:
        self.kept: Json = {}

    def place(self, figure: Json | None, *, title: str, says: str = "") -> Chart | None:
        """Nothing where there is no figure."""
        if figure is None:
            return None
        key = f"f{len(self.kept)}"
        self.kept[key] = figure
        return Chart(key, title, says, figure["layout"].get("height", 320))


def known(
    runs: list[RunData], part: Callable[[RunData], Part | Missing], what: str
) -> tuple[dict[str, Part], list[Gap]]:
    """A part of each run by the run's name, and the runs that do not have it."""
    found, gaps = {}, []
    for run in runs:
        one = part(run)
        if isinstance(one, Missing):
            gaps.append(Gap(f"{what} of {run.name}", one.why))
        else:
            found[run.name] = one
    return found, gaps
