"""What `reglet train task=domains` prints, at 80 columns and without needing colour."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from reglet.data import Images
from reglet.engine.domains import Curve, DomainsConfig, Job, Json, check, jobs, leave_each_out


def tracked(config: DomainsConfig, images: Images) -> Json:
    """`leave_each_out`, with a line for each run while it works."""
    check(images, selection=config.selection)  # before the first bar
    names = images.domains or []
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as progress:
        present = images.domain.unique().tolist() if images.domain is not None else []
        task = progress.add_task("", total=len(jobs(config, present)))

        def done(job: Job, curve: Curve) -> None:
            left = " and ".join(names[d] for d in job.left_out)
            score = f"{100 * curve.test[-1]:.1f} % on {names[job.left_out[0]]}"
            progress.console.print(f"without {left}, lr {job.lr:g}, seed {job.seed}: {score}")
            progress.advance(task)

        return leave_each_out(config, images, done=done)


def show(report: Json, console: Console | None = None) -> None:
    console = console or Console(highlight=False)
    config = report["config"]
    for note in report["notes"]:
        console.print(f"note: {note}")
    console.print(f"loss {config['loss']}, {config['model']} on {report['data']['name']}, {config['seeds']} seeds")
    console.print(f"selection: {config['selection']}\n")
    table = Table(box=None, pad_edge=False)
    for name in ("held out", "accuracy, %", "s.e.", "chosen, by seed: lr @ checkpoint"):
        table.add_column(name, justify="left" if name in ("held out",) else "right")
    for row in report["held_out"]:
        chosen = ", ".join(f"{c['lr']:g} @ {c['checkpoint']}" for c in row["chosen"])
        table.add_row(row["domain"], *_numbers(row), chosen)
    table.add_row("average", *_numbers(report["average"]), "")
    console.print(table)


def _numbers(row: Json) -> tuple[str, str]:
    error = row["standard_error"]
    return f"{100 * row['mean']:.1f}", "" if error is None else f"{100 * error:.1f}"
