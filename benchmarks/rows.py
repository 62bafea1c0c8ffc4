"""One measured number and what it was held against: what benchmarks return, the table prints and the file stores."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Row:
    """`value` of `metric` for `name` at `size`, measured `against` something; `low` and `high` are its spread.

    `met` is None where no target was set; `bound` says whether the target is a floor or a ceiling.
    """

    name: str
    size: str
    metric: str
    value: float
    target: float | None = None
    met: bool | None = None
    against: str = ""
    low: float | None = None
    high: float | None = None
    bound: Literal["", ">=", "<="] = ""


def at_least(
    name: str, size: str, metric: str, value: float, target: float, *, against: str = "", low: float, high: float
) -> Row:
    """A row whose target is a floor: times faster."""
    return Row(name, size, metric, value, target, value >= target, against, low, high, ">=")


def at_most(
    name: str, size: str, metric: str, value: float, target: float, *, against: str = "", low: float, high: float
) -> Row:
    """A row whose target is a ceiling: time with over time without, memory growth."""
    return Row(name, size, metric, value, target, value <= target, against, low, high, "<=")


HEADER = f"{'what, size':<25}{'measure':<28}{'value':>7} {'spread':>11} {'target':>6} met"


def lines(rows: Iterable[Row]) -> Iterator[str]:
    """The rows as plain text of 80 columns, each as soon as it is known: name and size stand at the left of a group."""
    yield HEADER
    group, left = ("", ""), [""]
    for row in rows:
        if (row.name, row.size) != group:
            yield from filter(None, left)
            yield "-" * 80
            group, left = (row.name, row.size), [row.name, row.size]
        text = left.pop(0) if left else ""
        yield f"{text:<25}{_measured(row)}".rstrip()
    yield from filter(None, left)


def _measured(row: Row) -> str:
    measure = f"{row.metric} {row.against}".strip()
    spread = "" if row.low is None or row.high is None or row.low == row.high else f"{row.low:.3g}..{row.high:.3g}"
    target = "" if row.target is None else f"{row.bound}{row.target:.3g}"
    met = {None: "", True: "yes", False: "NO"}[row.met]
    return f"{measure:<28}{row.value:>7.3g} {spread:>11} {target:>6} {met}"


def missed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.met is False]
