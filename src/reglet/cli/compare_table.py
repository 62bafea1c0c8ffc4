"""What `reglet compare` prints, at 80 columns and without needing colour."""

from rich.console import Console
from rich.table import Table

from reglet.cli.screen import screen
from reglet.compare import NAMES, Comparison


def show(result: Comparison, console: Console | None = None) -> None:
    console = console or screen()
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("base", "candidate", "difference", "95 % interval", ""):
        table.add_column(name, justify="right")
    for key, pair in result.scores.items():
        scale = 1 if key == "rank" else 100
        low, high = scale * pair.low, scale * pair.high
        table.add_row(
            NAMES[key],
            f"{scale * pair.base:.2f}",
            f"{scale * pair.candidate:.2f}",
            f"{scale * pair.difference:+.2f}",
            f"{low:+.2f} .. {high:+.2f}",
            f"p {pair.p:.3f}",
        )
    console.print(table)
    console.print()
    a, b = result.costs
    cost = Table(box=None, pad_edge=False)
    for name in ("", "base", "candidate", "ratio"):
        cost.add_column(name, justify="right" if name else "left")
    r = result.ratio
    spread = f"{r.time:.3f} ({r.time_low:.2f} .. {r.time_high:.2f})"
    cost.add_row("step time, ms", f"{1000 * a.seconds:.1f}", f"{1000 * b.seconds:.1f}", spread)
    if a.memory is not None and b.memory is not None and r.memory is not None:
        cost.add_row("peak memory, MB", f"{a.memory / 1e6:.0f}", f"{b.memory / 1e6:.0f}", f"{r.memory:.3f}")
    cost.add_row("parameters, M", f"{a.parameters / 1e6:.3f}", f"{b.parameters / 1e6:.3f}", f"{r.parameters:.3f}")
    cost.add_row("GFLOPs per step", f"{a.flops / 1e9:.2f}", f"{b.flops / 1e9:.2f}", f"{r.flops:.3f}")
    console.print(cost)
    console.print()
    console.print(result.sentence)
