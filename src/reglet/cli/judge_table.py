"""What `reglet eval` and `reglet robust` print of several encoders or data sets."""

from rich.console import Console
from rich.table import Table

from reglet.cli.eval_table import TITLES
from reglet.cli.screen import screen
from reglet.evaluate.judge import Duel, Judged

NAMES = {**TITLES, "clean": "clean images", "corrupted": "corrupted images"}
MARKS = {"better": "+", "worse": "-", "cannot be told": "=", "none": ""}


def show(found: Judged, console: Console | None = None) -> None:
    console = console or screen()
    for line in found.introductions:
        console.print(line)
    for measure in found.measures:
        console.print(f"\naccuracy in %, {NAMES.get(measure, measure)}\n")
        console.print(_scores(found, measure))
    if len(found.encoders) > 1:
        console.print(
            f"\n+ better than {found.encoders[0]}, - worse, = cannot be told. wins: comparisons won:lost, over all "
            "pairs of encoders and all sets.\n"
        )
        console.print(_differences(found))
        console.print(
            f"\nIntervals of 95 % are paired by test image (bootstrap). p is McNemar's{_or_flips(found)}, corrected "
            f"for all {len(found.duels)} comparisons (Holm). They say what other test images would change, not what "
            "another seed of training would."
        )
    counted = {cost.batch for cost in found.costs.values() if cost is not None}
    if counted:
        console.print(
            f"Cost is of the forward pass of one image: parameters, FLOPs, and time in batches of {max(counted)} here."
        )


def _or_flips(found: Judged) -> str:
    return " or of sign flips" if "corrupted" in found.measures else ""


def _scores(found: Judged, measure: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("encoder", overflow="fold")
    for name in found.sets:
        table.add_column(f"{name} ({found.images[name]:,})", justify="right", overflow="fold")
    several = len(found.encoders) > 1
    for title in (*(["wins"] if several else []), "params", "GFLOPs", "ms"):
        table.add_column(title, justify="right", no_wrap=True)
    told = {(d.set, d.candidate): MARKS[d.told] for d in found.against_first(measure)}
    for name in found.encoders:
        cells = [
            f"{100 * found.scores[measure][s][name]:.1f} {told.get((s, name), ' ')}".rstrip("\n") for s in found.sets
        ]
        won, lost = found.wins(name, measure)
        table.add_row(name, *cells, *([f"{won}:{lost}"] if several else []), *_cost(found, name))
    return table


def _cost(found: Judged, name: str) -> tuple[str, str, str]:
    cost = found.costs[name]
    if cost is None:
        return "", "", ""
    return f"{cost.parameters / 1e6:.1f} M", f"{cost.flops / 1e9:.3g}", f"{cost.milliseconds:.3g}"


def _differences(found: Judged) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(f"difference from {found.encoders[0]}", overflow="fold")
    for title in ("points", "interval", "p", ""):
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    for measure in found.measures:
        for name in found.sets:
            table.add_row(f"{NAMES.get(measure, measure)}, {name}")
            for duel in found.against_first(measure):
                if duel.set == name:
                    table.add_row(f"  {duel.candidate}", *_numbers(duel), duel.told)
    return table


def _numbers(duel: Duel) -> tuple[str, str, str]:
    seen = duel.seen
    p = "< 0.001" if duel.p < 0.001 else f"{duel.p:.3f}"
    return f"{100 * seen.difference:+.1f}", f"{100 * seen.low:+.1f}..{100 * seen.high:+.1f}", p
