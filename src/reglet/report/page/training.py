"""The section on training."""

from reglet.report.figures import training as draw
from reglet.report.gather import RunData
from reglet.report.gather.training import Training
from reglet.report.page.parts import Figures, Gap, Section, known

WHY = {
    "Gradient norm": "metrics.jsonl has no grad_norm",
    "Learning rate": "metrics.jsonl has no lr",
    "Online kNN": "metrics.jsonl has no knn: the data have no labels, or knn_every=0",
}


def training(runs: list[RunData], figures: Figures) -> Section:
    found, gaps = known(runs, lambda run: run.training, "Training")
    terms, strip, charts = None, None, []
    if found:
        spikes = sum(len(run.spikes) for run in found.values())
        drawn = {
            "Gradient norm": (draw.gradient(found), f"Spikes, above three times the moving average: {spikes}."),
            "Learning rate": (draw.rate(found), ""),
            "Online kNN": (draw.online_knn(found), online(runs)),
        }
        charts = [figures.place(figure, title=name, says=says) for name, (figure, says) in drawn.items() if figure]
        gaps += [Gap(name, WHY[name]) for name, (figure, _) in drawn.items() if figure is None]
        strip = figures.place(draw.watched(found), title="The doctor while it trained", says=alarms(found))
        if strip is None:
            gaps.append(Gap("The doctor while it trained", "metrics.jsonl has no verdicts: doctor=warn writes them"))
        terms = figures.place(draw.terms(found), title="Loss, term by term", says="The thick line is their sum.")
    return Section("training", "Training", "Training", {"terms": terms, "strip": strip, "charts": charts, "gaps": gaps})


def alarms(runs: dict[str, Training]) -> str:
    """The first alarm of each run that a doctor watched, in its own words."""
    said = []
    for label, run in runs.items():
        if not run.looks:
            continue
        first, of = run.first_alarm, f"{label}: " if len(runs) > 1 else ""
        if first is None:
            said.append(f"{of}no alarm in {len(run.looks)} looks.")
        else:
            said.append(f"{of}first alarm at {first.says or f'step {first.step}: {first.verdict}.'}")
    return " ".join(said)


def online(runs: list[RunData]) -> str:
    """Which images the online kNN is about."""
    tested = [run.repeat.resolved.get("data", {}).get("test", {}) for run in runs]
    names = dict.fromkeys(f"{test['name']} ({test['images']:,})" for test in tested if test)
    return f"while training: test images of {', '.join(names)} among training images, at most 2,000 of each"
