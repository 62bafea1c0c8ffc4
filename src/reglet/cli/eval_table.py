"""What `reglet eval` prints, at 80 columns and without needing colour."""

from rich.console import Console
from rich.table import Table

from reglet.cli.screen import screen
from reglet.evaluate import Evaluation
from reglet.evaluate.probing import Json
from reglet.evaluate.representation import Numbers

TITLES = {
    "knn": "kNN",
    "linear": "linear, SGD",
    "exact": "logistic",
    "ridge": "ridge",
    "mlp": "MLP",
    "few": "few labels",
}
COLUMNS = {
    "top_5": "top-5",
    "macro_f1": "F1",
    "balanced_accuracy": "bal.",
    "auroc": "AUROC",
    "calibration_error": "ECE",
}


def show(found: Evaluation, console: Console | None = None) -> None:
    console = console or screen()
    data = found.data
    for part, word in (("train", "probes are trained on"), ("test", "and tested on")):
        console.print(f"{word:<22}{data[part]['images']:>8,} images  {data[part]['name']}")
    console.print(f"\naccuracy and its 95 % interval, in %; {data['classes']} classes\n")
    console.print(_scores(found.probes))
    for what in ("by_domain", "by_frequency"):
        groups = {name: row[what] for name, row in found.probes.items() if what in row}
        if groups:
            console.print()
            console.print(_groups(what, groups))
    console.print()
    console.print(_representation(found.representation))
    times = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found.seconds.items())
    console.print(f"\nseconds: {times}")


def _scores(probes: dict[str, Json]) -> Table:
    present = [key for key in COLUMNS if any(key in row for row in probes.values())]
    table = _table("", "accuracy", "interval", *(COLUMNS[key] for key in present), "chosen")
    for name, row in probes.items():
        cells = [_percent(row.get(key)) for key in present]
        table.add_row(TITLES[name], _percent(row["accuracy"]), _interval(row), *cells, _chosen(row))
    return table


def _groups(what: str, groups: dict[str, dict[str, float]]) -> Table:
    names = list(dict.fromkeys(key for row in groups.values() for key in row))
    table = _table(f"accuracy {what.replace('_', ' ')}", *(TITLES[name] for name in groups))
    for key in names:
        table.add_row(key, *(_percent(row.get(key)) for row in groups.values()))
    return table


def _representation(z: Numbers) -> Table:
    table = _table(f"features of {z['samples']:,.0f} training images", "")
    d = z["features"]
    table.add_row("RankMe", f"{z['rankme']:.1f} of {d}")
    table.add_row("components with 90 % of the variance", f"{z['components_90']} of {d}")
    table.add_row("features that are constant", f"{z['constant_features']} of {d}")
    table.add_row("mean deviation of a feature", f"{z['mean_std']:.3g}")
    table.add_row("alpha-ReQ, slope of the spectrum", _number(z["alpha_req"]))
    table.add_row("alignment of classes (0 together, 2 anywhere)", _number(z["class_alignment"]))
    table.add_row("uniformity (0 at one point, -4 spread out)", _number(z["uniformity"]))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, overflow="fold")  # names of domains may be long
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _interval(row: Json) -> str:
    if "std" in row:
        return f"± {100 * row['std']:.1f}"
    low, high = row["interval"]
    return f"{100 * low:.1f}..{100 * high:.1f}"


def _chosen(row: Json) -> str:
    for key, title in (("k", "k"), ("rate", "lr"), ("strength", "L2"), ("per_class", "of each")):
        if key in row:
            return f"{row[key]:g} {title}" if key == "per_class" else f"{title} {row[key]:g}"
    return ""


def _percent(value: float | None) -> str:
    return "" if value is None or value != value else f"{100 * value:.1f}"


def _number(value: float | None) -> str:
    return "none" if value is None or value != value else f"{value:.3f}"
