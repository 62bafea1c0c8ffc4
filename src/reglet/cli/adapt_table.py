"""What `reglet adapt` prints at its end."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from reglet.cli.screen import screen
from reglet.evaluate.adapted import NAMES, REPORT, Adapted, Row

SAYS = {
    "better": "Better than the start: a score is higher and none is lower.",
    "worse": "Worse than the start: a score is lower and none is higher.",
    "mixed": "Mixed: some scores are higher than at the start, and some are lower.",
    "cannot be told": "It cannot be told: no score differs from the start's by more than other test images would.",
    "no labels": "No verdict: the data have no labels to score by, and a rank alone is neither better nor worse.",
}


def show(found: Adapted, out: Path, console: Console | None = None) -> None:
    console = console or screen()
    console.print(f"start and end ({found.which} weights) on the same {found.images:,} images, in % but for RankMe\n")
    table = Table(box=None, pad_edge=False)
    for column in ("", "start", "end", "difference (95 %)", "p", ""):
        table.add_column(column, justify="left" if not column else "right")
    for name, row in found.rows.items():
        table.add_row(NAMES[name], *_cells(row, 1 if name == "rank" else 100))
    console.print(table)
    console.print(f"\n{SAYS[found.verdict]}")
    console.print("Intervals are paired by image; p is corrected for the number of scores (Holm).")
    console.print(f"{out / REPORT} has every number.\n")


def _cells(row: Row, unit: int) -> tuple[str, ...]:
    f = row.found
    difference = f"{unit * f.difference:+.1f} ({unit * f.low:+.1f} to {unit * f.high:+.1f})"
    told = "" if row.told == "none" else row.told
    p = f"{row.p:.2g}" if f.judged else ""
    return f"{unit * f.base:.1f}", f"{unit * f.candidate:.1f}", difference, p, told
