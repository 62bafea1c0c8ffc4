"""The top of the page: accuracy and verdict of each run, and the sentence where two runs are compared."""

from reglet.report.across import Compared, by_image, in_words, over_seeds
from reglet.report.gather import Missing, RunData
from reglet.report.page.parts import Json, Section
from reglet.report.page.probes import TITLES, percent


def summary(runs: list[RunData], compared: Compared | None) -> Section:
    shown = {"lead": lead(runs, compared), "cards": [card(run) for run in runs]}
    return Section("summary", "Summary", "Accuracy and verdict", shown)


def lead(runs: list[RunData], compared: Compared | None) -> str | None:
    said = compared.stored.get("sentence") if compared else None
    if said is None and (seeds := over_seeds(runs)) is not None:
        said = seeds.sentence
    if said is None and len(runs) > 1:
        said = in_words(by_image(runs), runs)
    return said


def card(run: RunData) -> Json:
    unknown = isinstance(run.verdict, Missing)
    findings = [] if isinstance(run.verdict, Missing) else [*run.verdict.findings, *run.verdict.remarks]
    return {
        "name": run.name,
        "headline": headline(run),
        "unknown": run.verdict.why if isinstance(run.verdict, Missing) else "",
        "level": "unclear" if unknown else findings[0].level,
        "cut_off": cut_off(run),
        "findings": findings,
    }


def headline(run: RunData) -> Json | None:
    """The accuracy, whose it is, of how many images, and what one gets without training."""
    if isinstance(run.probes, Missing):
        return None
    found = run.probes
    whose = next((name for name in TITLES if name in found.scores), None)
    if whose is None:
        return None
    low, high = found.scores[whose]["interval"]
    common, share = found.chance
    beside = [
        f"{what}: {percent(row[whose if whose in row else 'linear']['accuracy'])} %"
        for what, row in found.before.items()
        if whose in row or "linear" in row
    ]
    if beside and whose == "classifier":
        beside = [f"linear probe of {text}" for text in beside]
    whom = f"the {TITLES[whose].removeprefix('the ')}"
    return {
        "accuracy": percent(found.scores[whose]["accuracy"]),
        "of": f"accuracy of {whom} on {found.images[1]:,} test images of {found.test}",
        "interval": f"{percent(low)} to {percent(high)}",
        "beside": [*beside, f"always {common!r}, the commonest class: {percent(share)} %"],
    }


def cut_off(run: RunData) -> str:
    if isinstance(run.training, Missing) or run.training.finished:
        return ""
    done, asked = run.training.epochs
    return f"{done:.3g} of {asked} epochs are done, up to step {run.training.last_step}: the page shows so much"
