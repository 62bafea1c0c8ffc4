"""What `reglet eval` prints, at 80 columns and without needing colour."""

from rich.console import Console
from rich.table import Table

from reglet.cli.screen import screen
from reglet.evaluate import Evaluation
from reglet.evaluate.classes import ByClass
from reglet.evaluate.probing import Json
from reglet.evaluate.representation import Numbers
from reglet.evaluate.source import Encoder

TITLES = {
    "classifier": "classifier",
    "knn": "kNN",
    "linear": "linear probe",
    "exact": "logistic",
    "ridge": "ridge",
    "mlp": "MLP",
    "few": "few labels",
}
ROOM = 10  # classes whose confusions fit into 80 columns
COLUMNS = {
    "top_5": "top-5",
    "macro_f1": "F1",
    "balanced_accuracy": "bal.",
    "auroc": "AUROC",
    "calibration_error": "ECE",
}


def show_encoder(encoder: Encoder, console: Console | None = None) -> None:
    """What is judged, and how its images are prepared."""
    (console or screen()).print(encoder.introduction() + "\n")


def show(found: Evaluation, console: Console | None = None, *, what: str = "trained") -> None:
    """what: the name of the row of the encoder itself."""
    console = console or screen()
    show_scores(found, console, what=what)
    console.print("\naccuracy and its 95 % interval, in %\n")
    console.print(_scores(found.probes))
    if found.classes is not None:
        console.print()
        _show_classes(found.classes, console)
    for what in ("by_domain", "by_frequency"):
        groups = {name: row[what] for name, row in found.probes.items() if what in row}
        if groups:
            console.print()
            console.print(_groups(what, groups))
    console.print()
    console.print(_representation(found.representation))
    times = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found.seconds.items())
    console.print(f"\nseconds: {times}")


def show_scores(found: Evaluation, console: Console | None = None, *, what: str = "trained") -> None:
    """Whose accuracy, on which images, and what it is without training: the table that a person looks for."""
    console = console or screen()
    train, test = found.data["train"], found.data["test"]
    console.print(f"accuracy in % on {test['images']:,} test images of {test['name']}, {found.data['classes']} classes")
    console.print(f"probes learn from {train['images']:,} images of {train['name']}")
    if "classifier" in found.probes:
        console.print("the classifier is the run's own; probes read its features")
    table = _table("", *(TITLES[name] for name in found.probes))
    table.add_row(what, *(_percent(row["accuracy"]) for row in found.probes.values()))
    for other, row in found.untrained.items():
        table.add_row(other, *(_percent(row.get(name, {}).get("accuracy")) for name in found.probes))
    common, share = found.data["chance"]
    table.add_row(f"chance: always {common!r}", *[_percent(share)] * len(found.probes))
    console.print()
    console.print(table)


def _show_classes(found: ByClass, console: Console) -> None:
    """Accuracy of each class, with what it was taken for where that has room; of many classes the extremes."""
    whose = TITLES[found.by]
    small = len(found.names) <= ROOM
    rows = [i for i, share in enumerate(found.accuracy) if share is not None]
    if not small:
        ordered = sorted(rows, key=lambda i: found.accuracy[i] or 0.0)
        rows = list(dict.fromkeys([*ordered[:5], *ordered[-5:]]))
    numbers = [str(i) for i in range(1, len(found.names) + 1)] if small else []
    table = _table(f"{whose} by class{'' if small else ', the worst and the best'}", "images", "accuracy", *numbers)
    for i in rows:
        name = f"{i + 1} {found.names[i]}" if small else found.names[i]
        cells = [str(n) if n else "." for n in found.table[i]] if small else []
        table.add_row(name, f"{found.counts[i]:,}", _percent(found.accuracy[i]), *cells)
    console.print(table)
    if small:
        console.print(f"columns 1 to {len(found.names)}: how many images of the row's class were taken for that class")
    elif mistakes := found.mistakes(5):
        said = "; ".join(f"{a} for {b} {n:,}" for a, b, n in mistakes)
        console.print(f"most frequent mistakes: {said}")


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
