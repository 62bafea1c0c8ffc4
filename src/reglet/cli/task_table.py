"""What `reglet train task=NAME` prints, at 80 columns and without needing colour."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from reglet.tasks.config import TaskConfig
from reglet.tasks.run import Job, Json, jobs, run
from reglet.tasks.task import Task


def tracked(name: str, task: Task[Any, Any], config: TaskConfig) -> Json:
    """All runs, with a line for each when it is finished."""
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("", total=len(jobs(config)))

        def done(job: Job, result: Json) -> None:
            arm = f"SIM on {len(result['blocks'])} blocks" if job.sim else "without SIM" if config.paired else "trained"
            progress.console.print(f"seed {job.seed}, {arm}: {task.main} {result['scores'][task.main]:.4f}")
            progress.advance(bar)

        return run(name, task, config, done=done)


def show(report: Json, console: Console | None = None) -> None:
    console = console or Console(highlight=False)
    config = report["config"]
    console.print(f"task {report['task']}, {config['model'] or 'its default network'}, {config['seeds']} seeds")
    if report["blocks"]:
        console.print(f"SIM on {', '.join(report['blocks'])}; weight {config['weight']:g}, rho {config['rho']:g}")
    console.print()
    arms = [arm for arm in ("without", "with") if any(row[arm] for row in report["scores"].values())]
    table = Table(box=None, pad_edge=False)
    table.add_column("score")
    for arm in arms:
        table.add_column(f"{arm} SIM" if len(arms) == 2 or arm == "with" else "value", justify="right")
    if len(arms) == 2:
        table.add_column("SIM minus without", justify="right")
        table.add_column("told apart", justify="right")
    for score, row in report["scores"].items():
        cells = [_number(row[arm], spread=len(arms) == 1) for arm in arms]
        if len(arms) == 2:
            d = row["difference"]
            interval = f" ({d['low']:+.4f}, {d['high']:+.4f})" if d["seeds"] > 1 else ""
            cells += [f"{d['difference']:+.4f}{interval}", "yes" if d["told"] else "no"]
        table.add_row(score, *cells)
    console.print(table)
    if len(arms) == 2:
        console.print("In brackets the 95 % interval of the paired difference (bootstrap-t).")


def _number(value: Json | None, *, spread: bool) -> str:
    """spread: with its standard error; beside a paired difference there is no room for it, nor need."""
    if value is None:
        return ""
    error = value["standard_error"] if spread else None
    return f"{value['mean']:.4f}" + ("" if error is None else f" ± {error:.4f}")
