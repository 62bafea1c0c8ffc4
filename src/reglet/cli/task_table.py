"""What `reglet train task=NAME` prints, at 80 columns and without needing colour."""

from typing import Any

from rich.console import Console
from rich.table import Table

from reglet.cli.screen import screen

Json = dict[str, Any]


def show(report: Json, console: Console | None = None) -> None:
    console = console or screen()
    if "held_out" in report:
        show_domains(report, console)
    else:
        show_scores(report, console)


def show_scores(report: Json, console: Console) -> None:
    config = report["config"]
    console.print(f"task {report['task']}, {config['model'] or 'its default network'}, {config['seeds']} seeds")
    if report["blocks"]:
        rho = config.get("sim.rho", 0.2)
        console.print(
            f"rhoSIM on {', '.join(report['blocks'])}; weight {config['sim_weight']}, rho {rho}", markup=False
        )
    for key, where in config.items():
        if key.startswith("attach.") and key.endswith(".where"):
            number = key.split(".")[1]
            loss, weight = config[f"attach.{number}.loss"], config.get(f"attach.{number}.weight", 1)
            console.print(f"{loss} on {where}; weight {weight}", markup=False)
    console.print()
    what = "SIM" if report["blocks"] else "attached"
    arms = [arm for arm in ("without", "with") if any(row[arm] for row in report["scores"].values())]
    table = Table(box=None, pad_edge=False)
    table.add_column("score")
    for arm in arms:
        table.add_column(f"{arm} {what}" if len(arms) == 2 or arm == "with" else "value", justify="right")
    if len(arms) == 2:
        table.add_column(f"{what} minus without", justify="right")
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
        console.print("In brackets the 95 % interval of the paired difference (Student's t).")


def _number(value: Json | None, *, spread: bool) -> str:
    """spread: with its standard error; beside a paired difference there is no room for it, nor need."""
    if value is None:
        return ""
    error = value["standard_error"] if spread else None
    return f"{value['mean']:.4f}" + ("" if error is None else f" ± {error:.4f}")


def show_domains(report: Json, console: Console) -> None:
    config = report["config"]
    for note in report["notes"]:
        console.print(f"note: {note}")
    console.print(f"loss {config['loss']}, {config['model']} on {report['data']['name']}, {config['seeds']} seeds")
    console.print(f"selection: {config['selection']}\n")
    table = Table(box=None, pad_edge=False)
    if "difference" in report["average"]:
        for name in ("held out", "without, %", "with, %", "difference", "95 % interval", "told apart"):
            table.add_column(name, justify="left" if name == "held out" else "right")
        for row in (*report["held_out"], report["average"]):
            table.add_row(row.get("domain", "average"), *_pair(row))
        console.print(table)
        return
    for name in ("held out", "accuracy, %", "s.e.", "chosen, by seed: lr @ checkpoint"):
        table.add_column(name, justify="left" if name in ("held out",) else "right")
    for row in report["held_out"]:
        chosen = ", ".join(f"{c['lr']:g} @ {c['checkpoint']}" for c in row["chosen"])
        table.add_row(row["domain"], *_per_cent(row), chosen)
    table.add_row("average", *_per_cent(report["average"]), "")
    console.print(table)


def _pair(row: Json) -> list[str]:
    d = row["difference"]
    interval = f"{100 * d['low']:+.1f} to {100 * d['high']:+.1f}" if d["seeds"] > 1 else ""
    told = "yes" if d["told"] else "no"
    return [_per_cent(row["without"])[0], _per_cent(row)[0], f"{100 * d['difference']:+.1f}", interval, told]


def _per_cent(row: Json) -> tuple[str, str]:
    error = row["standard_error"]
    return f"{100 * row['mean']:.1f}", "" if error is None else f"{100 * error:.1f}"
