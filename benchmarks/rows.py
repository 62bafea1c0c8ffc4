"""One measured number and what it was held against: what every benchmark returns, what the table prints, what is stored."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """`value` of `metric` for `name` at `size`, measured `against` something; `low` and `high` are its spread.

    `met` is None where no target was set.
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


def at_least(
    name: str, size: str, metric: str, value: float, target: float, *, against: str = "", low: float, high: float
) -> Row:
    """A row whose target is a floor: times faster."""
    return Row(name, size, metric, value, target, value >= target, against, low, high)


def at_most(
    name: str, size: str, metric: str, value: float, target: float, *, against: str = "", low: float, high: float
) -> Row:
    """A row whose target is a ceiling: time with over time without, memory growth."""
    return Row(name, size, metric, value, target, value <= target, against, low, high)


def table(rows: Sequence[Row]) -> str:
    """The rows as plain text of 80 columns; name and size are printed where they change."""
    lines = [f"{'what':<15}{'size':<22}{'measure':<21}{'value':>8}  {'target':>7} met", "-" * 80]
    before = ("", "")
    for row in rows:
        same = (row.name, row.size) == before
        name, size = ("", "") if same else (row.name, row.size)
        if not same and before != ("", ""):
            lines.append("")
        before = (row.name, row.size)
        target = "" if row.target is None else f"{row.target:.4g}"
        met = {None: "", True: "yes", False: "NO"}[row.met]
        measure = f"{row.metric} {row.against}".strip()
        lines.append(f"{name:<15}{size:<22}{measure:<21}{row.value:>8.3g}  {target:>7} {met}".rstrip())
        if row.low is not None and row.high is not None:
            lines.append(f"{'':<37}{'':<21}{f'{row.low:.3g}..{row.high:.3g}':>12}")
    return "\n".join(lines)
