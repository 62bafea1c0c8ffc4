"""The section on scores and cost: probes, confusions, domains, and what training took."""

from reglet.evaluate.classes import ByClass
from reglet.report.figures.classes import confusions
from reglet.report.gather import RunData
from reglet.report.gather.probing import Probes
from reglet.report.page.parts import Chart, Figures, Json, Section, Table, known

TITLES = {"classifier": "the classifier itself", "linear": "linear probe", "knn": "kNN"}
KEYS = {"top_5": "top-5", "macro_f1": "F1", "auroc": "AUROC", "calibration_error": "ECE"}


def probes(runs: list[RunData], figures: Figures) -> Section:
    found, gaps = known(runs, lambda run: run.probes, "Probes")
    fitted = [f"{one.images[0]:,} images of {one.train} for {one.images[1]:,} of {one.test}" for one in found.values()]
    shown = {
        "table": scores(found),
        "fitted": "; ".join(dict.fromkeys(fitted)),
        "gaps": gaps,
        "confused": confused(found, figures),
        "tables": [table for table in (domains(found), costs(runs)) if table],
    }
    return Section("probes", "Scores and cost", "Scores and cost", shown)


def scores(found: dict[str, Probes]) -> Table | None:
    before = list(dict.fromkeys(what for one in found.values() for what in one.before))
    rows = []
    for run, one in found.items():
        for name, row in one.scores.items():
            low, high = row["interval"]
            cells = [percent(row["accuracy"]), f"{percent(low)} to {percent(high)}"]
            cells += [percent(one.before.get(what, {}).get(name, {}).get("accuracy")) for what in before]
            cells += [percent(one.chance[1]), *(percent(row.get(key)) for key in KEYS)]
            rows.append([f"{run}: {TITLES.get(name, name)}", *cells])
    head = ["in % of the test images", "accuracy", "95 % interval", *before, "chance", *KEYS.values()]
    return Table("Accuracy of probes", head, rows) if rows else None


def confused(found: dict[str, Probes], figures: Figures) -> list[Chart | Json]:
    """What was taken for what, by the classifier itself or by the linear probe; of many classes the worst in words."""
    parts: list[Chart | Json] = []
    for name, one in found.items():
        if (by := one.classes) is not None:
            says = f"{TITLES.get(by.by, by.by)}: true class and its accuracy, and what its images were taken for"
            drawn = figures.place(confusions(by), title=f"{name}, class by class", says=says)
            parts.append(drawn or _worst(name, by))
    return parts


def _worst(name: str, found: ByClass) -> Json:
    ordered = sorted((share, k) for k, share in enumerate(found.accuracy) if share is not None)
    rows = [[found.names[k], found.counts[k], percent(share)] for share, k in ordered[:10]]
    label = f"{name}, the ten worst of {len(found.names)} classes"
    taken = "; ".join(f"{a} for {b}: {n}" for a, b, n in found.mistakes(10))
    return {"table": Table(label, [label, "images", "accuracy"], rows), "taken": taken}


def domains(found: dict[str, Probes]) -> Table | None:
    """Accuracy of the linear probe in each domain."""
    by = {name: rows for name, one in found.items() if (rows := one.scores.get("linear", {}).get("by_domain"))}
    every = dict.fromkeys(domain for rows in by.values() for domain in rows)
    rows = [[domain, *(percent(per.get(domain)) for per in by.values())] for domain in every]
    return Table("Accuracy by domain", ["linear probe by domain", *by], rows) if rows else None


def costs(runs: list[RunData]) -> Table | None:
    found, _ = known(runs, lambda run: run.cost, "Cost")
    lines = {
        "steps": [count(c.steps) for c in found.values()],
        "images seen": [count(c.images) for c in found.values()],
        "images per second, median": [count(c.images_per_second) for c in found.values()],
        "minutes, pauses included": [scaled(c.seconds, 60.0, 1) for c in found.values()],
        "parameters in training": [count(c.trained_parameters) for c in found.values()],
        "parameters of the encoder": [count(c.encoder_parameters) for c in found.values()],
        "MFLOPs of the encoder, per image": [scaled(c.flops, 1e6, 2) for c in found.values()],
        "MB of encoder.safetensors": [scaled(c.encoder_bytes, 1e6, 2) for c in found.values()],
    }
    rows = [[name, *cells] for name, cells in lines.items() if any(cells)]
    return Table("Cost", ["cost", *found], rows) if rows else None


def percent(value: int | float | None) -> str:
    return "" if value is None or value != value else f"{100 * value:.1f}"


def count(value: int | float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def scaled(value: int | float | None, unit: float, digits: int) -> str:
    return "" if value is None else f"{value / unit:.{digits}f}"
