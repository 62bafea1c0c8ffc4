"""The top of the page: verdict, probes, cost, and the sentence where two runs are compared."""

from reglet.evaluate.classes import ByClass
from reglet.report.across import Compared, by_image, in_words, over_seeds
from reglet.report.figures.classes import confusions
from reglet.report.gather import Missing, RunData
from reglet.report.gather.cost import RunCost
from reglet.report.page.markup import Figures, esc, grid, missing, note, section, table

MARKS = {"healthy": "✓", "remark": "i", "unclear": "?", "sick": "✗"}
TITLES = {"classifier": "the classifier itself", "linear": "linear probe", "knn": "kNN"}


def summary(runs: list[RunData], compared: Compared | None) -> str:
    return section("summary", "Accuracy and verdict", lead(runs, compared) + grid(*(verdict(run) for run in runs)))


def probes_and_cost(runs: list[RunData], figures: Figures) -> str:
    tables = f'<div class="tables">{domains(runs)}{costs(runs)}</div>'
    return section("probes", "Scores and cost", probes(runs) + grid(*confused(runs, figures)) + tables)


def lead(runs: list[RunData], compared: Compared | None) -> str:
    said = compared.stored.get("sentence") if compared else None
    if said is None and (seeds := over_seeds(runs)) is not None:
        said = seeds.sentence
    if said is None and len(runs) > 1:
        said = in_words(by_image(runs), runs)
    return f'<p class="lead">{esc(said)}</p>' if said else ""


def headline(run: RunData) -> str:
    """The accuracy, whose it is, of how many images, and what one gets without training."""
    if isinstance(run.probes, Missing):
        return ""
    found = run.probes
    whose = next((name for name in TITLES if name in found.scores), None)
    if whose is None:
        return ""
    low, high = found.scores[whose]["interval"]
    common, share = found.chance
    beside = [
        f"{what}: {percent(row[whose if whose in row else 'linear']['accuracy'])} %"
        for what, row in found.before.items()
        if whose in row or "linear" in row
    ]
    if beside and whose == "classifier":
        beside = [f"linear probe of {text}" for text in beside]
    beside.append(f"always {common!r}, the commonest class: {percent(share)} %")
    whom = f"the {TITLES[whose].removeprefix('the ')}"
    said = f"accuracy of {whom} on {found.images[1]:,} test images of {found.test}"
    interval = f"95 % interval {percent(low)} to {percent(high)}"
    return (
        f'<p class="headline"><b>{percent(found.scores[whose]["accuracy"])} %</b> {esc(said)} ({interval})</p>'
        f'<p class="beside">{esc("; ".join(beside))}</p>'
    )


def verdict(run: RunData) -> str:
    name = f"<h3>{esc(run.name)}</h3>{headline(run)}"
    if isinstance(run.verdict, Missing):
        return f'<div class="card unclear">{name}{missing("Verdict", run.verdict)}{unfinished(run)}</div>'
    rows = []
    for finding in (*run.verdict.findings, *run.verdict.remarks):
        lines = (("evidence", finding.evidence), ("cause", finding.cause), ("next", finding.next_step))
        shown = "".join(f"<dt>{label}</dt><dd>{esc(text)}</dd>" for label, text in lines)
        mark = f'<span class="mark {finding.level}" aria-hidden="true">{MARKS[finding.level]}</span>'
        remark = "Remark: " if finding.level == "remark" else ""
        told = f'<p class="finding">{mark} {remark}<b>{esc(finding.name)}</b></p><dl>{shown}</dl>'
        rows.append(told)
    return f'<div class="card {run.verdict.findings[0].level}">{name}{unfinished(run)}{"".join(rows)}</div>'


def unfinished(run: RunData) -> str:
    if isinstance(run.training, Missing) or run.training.finished:
        return ""
    done, asked = run.training.epochs
    return missing(
        "Cut off", f"{done:.3g} of {asked} epochs are done, up to step {run.training.last_step}: the page shows so much"
    )


def probes(runs: list[RunData]) -> str:
    keys = {"top_5": "top-5", "macro_f1": "F1", "auroc": "AUROC", "calibration_error": "ECE"}
    rows, gaps, about = [], [], []
    known = [run.probes for run in runs if not isinstance(run.probes, Missing)]
    before = list(dict.fromkeys(what for found in known for what in found.before))
    for run in runs:
        if isinstance(run.probes, Missing):
            gaps.append(missing(f"Probes of {run.name}", run.probes))
            continue
        train, test = run.probes.images
        about.append(f"{train:,} images of {run.probes.train} for {test:,} of {run.probes.test}")
        for name, row in run.probes.scores.items():
            low, high = row["interval"]
            cells = [f"<b>{percent(row['accuracy'])}</b>", f"{percent(low)} to {percent(high)}"]
            cells += [percent(run.probes.before.get(what, {}).get(name, {}).get("accuracy")) for what in before]
            cells += [percent(run.probes.chance[1]), *(percent(row.get(key)) for key in keys)]
            rows.append([esc(f"{run.name}: {TITLES.get(name, name)}"), *cells])
    head = ["in % of the test images", "accuracy", "95 % interval", *map(esc, before), "chance", *keys.values()]
    shown = table(head, rows, label="Accuracy of probes") if rows else ""
    said = (
        note(
            "Probes are fitted on "
            + esc("; ".join(dict.fromkeys(about)))
            + ". Chance: always the class that most training images have."
        )
        if about
        else ""
    )
    return shown + said + "".join(gaps)


def confused(runs: list[RunData], figures: Figures) -> list[str]:
    """What was taken for what, by the classifier itself or by the linear probe; of many classes the worst in words."""
    parts = []
    for run in runs:
        if isinstance(run.probes, Missing) or (found := run.probes.classes) is None:
            continue
        title = f"{run.name}, class by class"
        says = f"{TITLES.get(found.by, found.by)}: true class and its accuracy, and what its images were taken for"
        parts.append(figures.place(confusions(found), title=title, says=says) or _worst(run.name, found))
    return parts


def _worst(name: str, found: ByClass) -> str:
    ordered = sorted((share, k) for k, share in enumerate(found.accuracy) if share is not None)
    rows = [[esc(found.names[k]), str(found.counts[k]), percent(share)] for share, k in ordered[:10]]
    taken = "; ".join(f"{a} for {b}: {n}" for a, b, n in found.mistakes(10))
    label = f"{name}, the ten worst of {len(found.names)} classes"
    return f"<div>{table([esc(label), 'images', 'accuracy'], rows, label=label)}{note(esc(f'Mistakes: {taken}'))}</div>"


def domains(runs: list[RunData]) -> str:
    """Accuracy of the linear probe in each domain."""
    found = {}
    for run in runs:
        if not isinstance(run.probes, Missing):
            rows = run.probes.scores.get("linear", {}).get("by_domain")
            if rows:
                found[run.name] = rows
    if not found:
        return ""
    every = list(dict.fromkeys(name for rows in found.values() for name in rows))
    rows = [[esc(name), *(percent(per.get(name)) for per in found.values())] for name in every]
    return table(["linear probe by domain", *map(esc, found)], rows, label="Accuracy by domain")


def costs(runs: list[RunData]) -> str:
    known = {run.name: run.cost for run in runs if not isinstance(run.cost, Missing)}
    lines = {
        "steps": [count(c.steps) for c in known.values()],
        "images seen": [count(c.images) for c in known.values()],
        "images per second, median": [count(c.images_per_second) for c in known.values()],
        "minutes, pauses included": [_minutes(c) for c in known.values()],
        "parameters in training": [count(c.trained_parameters) for c in known.values()],
        "parameters of the encoder": [count(c.encoder_parameters) for c in known.values()],
        "MFLOPs of the encoder, per image": [_scaled(c.flops) for c in known.values()],
        "MB of encoder.safetensors": [_scaled(c.encoder_bytes) for c in known.values()],
    }
    rows = [[name, *cells] for name, cells in lines.items() if any(cells)]
    return table(["cost", *map(esc, known)], rows, label="Cost") if rows else ""


def percent(value: int | float | None) -> str:
    return "" if value is None or value != value else f"{100 * value:.1f}"


def count(value: int | float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _minutes(cost: RunCost) -> str:
    return "" if cost.seconds is None else f"{cost.seconds / 60:.1f}"


def _scaled(value: int | None) -> str:
    return "" if value is None else f"{value / 1e6:.2f}"
