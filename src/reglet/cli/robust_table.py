"""What `reglet robust` prints, at 80 columns and without needing colour."""

from rich.console import Console
from rich.table import Table

from reglet.cli.screen import screen
from reglet.evaluate.robust import Robust


def show(found: Robust, console: Console | None = None) -> None:
    console = console or screen()
    seen = found.corruptions
    console.print(f"linear probe on {found.images:,} test images; accuracy in %\n")
    table = Table(box=None, pad_edge=False)
    for name in ("severity", *map(str, seen.severities), "mean"):
        table.add_column(name, justify="left" if name == "severity" else "right")
    table.add_row("clean", *[""] * len(seen.severities), f"{100 * seen.clean:.1f}")
    for name, row in seen.accuracy.items():
        table.add_row(name.replace("_", " "), *(f"{100 * a:.1f}" for a in row), f"{100 * sum(row) / len(row):.1f}")
    table.add_row("all corruptions", *[""] * len(seen.severities), f"{100 * seen.mean:.1f}")
    console.print(table)
    if found.stability is not None:
        moving = Table(box=None, pad_edge=False)
        for name in ("along a sequence", "accuracy", "flips"):
            moving.add_column(name, justify="left" if name.startswith("along") else "right")
        for name, share in found.stability.accuracy.items():
            flips = found.stability.flip_rate[name]
            moving.add_row(name.replace("_", " "), f"{100 * share:.1f}", f"{100 * flips:.1f}")
        moving.add_row("mean flip rate", "", f"{100 * found.stability.mean_flip_rate:.1f}")
        console.print()
        console.print(moving)
