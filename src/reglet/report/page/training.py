"""The section on training."""

from reglet.report.figures import training as draw
from reglet.report.gather import RunData
from reglet.report.page.parts import Figures, Gap, Section, known

WHY = {
    "Gradient norm": "metrics.jsonl has no grad_norm",
    "Learning rate": "metrics.jsonl has no lr",
    "Online kNN": "metrics.jsonl has no knn: the data have no labels, or knn_every=0",
}


def training(runs: list[RunData], figures: Figures) -> Section:
    found, gaps = known(runs, lambda run: run.training, "Training")
    terms, charts = None, []
    if found:
        spikes = sum(len(run.spikes) for run in found.values())
        drawn = {
            "Gradient norm": (draw.gradient(found), f"Spikes, above three times the moving average: {spikes}."),
            "Learning rate": (draw.rate(found), ""),
            "Online kNN": (draw.online_knn(found), online(runs)),
        }
        charts = [figures.place(figure, title=name, says=says) for name, (figure, says) in drawn.items() if figure]
        gaps += [Gap(name, WHY[name]) for name, (figure, _) in drawn.items() if figure is None]
        terms = figures.place(draw.terms(found), title="Loss, term by term", says="The thick line is their sum.")
    return Section("training", "Training", "Training", {"terms": terms, "charts": charts, "gaps": gaps})


def online(runs: list[RunData]) -> str:
    """Which images the online kNN is about."""
    tested = [run.repeat.resolved.get("data", {}).get("test", {}) for run in runs]
    names = dict.fromkeys(f"{test['name']} ({test['images']:,})" for test in tested if test)
    return f"while training: test images of {', '.join(names)} among training images, at most 2,000 of each"
