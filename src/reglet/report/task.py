"""A page about a task: its scores with rhoSIM and without or by domain, the curves of its runs, how to repeat it."""

import json
from pathlib import Path
from typing import Any

from reglet.report.gather.missing import Missing, attempt
from reglet.report.gather.repeat import read_stored, repeat
from reglet.report.gather.run import RunData
from reglet.report.gather.training import training as gather_training
from reglet.report.page.assemble import assemble
from reglet.report.page.parts import Figures, Section, Table
from reglet.report.page.repeat import repeat as repeat_section
from reglet.report.page.training import training

Json = dict[str, Any]
REPORT = "task.json"
MOST = 8  # runs whose curves are drawn


def read_task(out: Path) -> Json | None:
    """What `reglet train task=NAME` left in `out`, if it did."""
    path = out / REPORT
    return json.loads(path.read_text()) if path.is_file() else None


def task_page(out: Path, report: Json) -> str:
    runs, figures = finished(out), Figures()
    table, about = by_domain(report) if "held_out" in report else by_score(report)
    sections = [
        Section("scores", "Scores", "Scores", {"table": table, "about": about}),
        *([training(runs, figures)] if runs else []),
        repeat_section([bare("this command", out)]),
    ]
    return assemble(f"task {report['task']}", sections, figures)


def finished(out: Path) -> list[RunData]:
    """The first runs that are stored, by arm and seed."""
    found = []
    for file in sorted((out / "runs").glob("*.json")):
        run = json.loads(file.read_text())["run"]
        name = ", ".join(str(part) for part in (run["arm"], run["fold"], f"seed {run['seed']}") if part)
        if file.with_suffix("").is_dir():
            found.append((run["seed"], name, file.with_suffix("")))
    return [bare(name, folder) for _, name, folder in sorted(found)[:MOST]]


def bare(name: str, folder: Path) -> RunData:
    """A run of which only its curves and its configuration are looked at."""
    stored, none = read_stored(folder), Missing("it is not looked at for a task")
    return RunData(
        name,
        repeat(stored),
        attempt(lambda: gather_training(folder, stored)),
        verdict=none,
        probes=none,
        cost=none,
        embedding=none,
        latents=None,
        geometry=none,
        maps=none,
        equivariance=none,
        robustness=none,
    )


def by_score(report: Json) -> tuple[Table, str]:
    arms = [arm for arm in ("without", "with") if any(row[arm] for row in report["scores"].values())]
    head = ["score", *(f"{arm} {'rhoSIM' if report['blocks'] else 'attached'}" for arm in arms)]
    both = len(arms) == 2
    rows = []
    for score, row in report["scores"].items():
        cells = [score, *(_mean(row[arm]) for arm in arms)]
        if both:
            d = row["difference"]
            cells += [f"{d['difference']:+.4f}", f"{d['low']:+.4f} to {d['high']:+.4f}", "yes" if d["told"] else "no"]
        rows.append(cells)
    head += ["difference", "95 % interval", "told apart"] if both else []
    config = report["config"]
    about = f"{config['model']}, {config['seeds']} seeds"
    if report["blocks"]:
        about += f"; rhoSIM on {', '.join(report['blocks'])}, weight {config['sim_weight']}"
    return Table("Scores", head, rows), about


def by_domain(report: Json) -> tuple[Table, str]:
    every = (*report["held_out"], report["average"])
    rows = [[row.get("domain", "average"), f"{100 * row['mean']:.1f}", _error(row)] for row in every]
    head = ["held out", "accuracy, %", "standard error"]
    if "difference" in report["average"]:
        head += ["without, %", "difference", "95 % interval"]
        for cells, row in zip(rows, every, strict=True):
            d = row["difference"]
            cells += [f"{100 * row['without']['mean']:.1f}", f"{100 * d['difference']:+.1f}"]
            cells += [f"{100 * d['low']:+.1f} to {100 * d['high']:+.1f}"]
    config = report["config"]
    about = f"loss {config['loss']}, {config['model']}, {config['seeds']} seeds, selection by {config['selection']}"
    return Table("Accuracy by domain", head, rows), about


def _mean(value: Json | None) -> str:
    if value is None:
        return ""
    error = value["standard_error"]
    return f"{value['mean']:.4f}" + ("" if error is None else f" ± {error:.4f}")


def _error(row: Json) -> str:
    return "" if row["standard_error"] is None else f"{100 * row['standard_error']:.1f}"
