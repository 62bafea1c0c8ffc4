"""The section on training."""

from reglet.report.figures import training as draw
from reglet.report.gather import Missing, RunData
from reglet.report.page.markup import Figures, grid, missing, section


def online(runs: list[RunData]) -> str:
    """Which images the online kNN is about."""
    tested = [run.repeat.resolved.get("data", {}).get("test", {}) for run in runs]
    names = dict.fromkeys(f"{test['name']} ({test['images']:,})" for test in tested if test)
    return f"while training: test images of {', '.join(names)} among training images, at most 2,000 of each"


def training(runs: list[RunData], figures: Figures) -> str:
    known = {run.name: run.training for run in runs if not isinstance(run.training, Missing)}
    gaps = [missing(f"Training of {run.name}", run.training) for run in runs if isinstance(run.training, Missing)]
    if not known:
        return section("training", "Training", "".join(gaps))
    spikes = sum(len(run.spikes) for run in known.values())
    parts = {
        "Gradient norm": figures.place(
            draw.gradient(known),
            title="Gradient norm",
            says=f"Spikes, above three times the moving average: {spikes}.",
        ),
        "Learning rate": figures.place(draw.rate(known), title="Learning rate"),
        "Online kNN": figures.place(draw.online_knn(known), title="Online kNN", says=online(runs)),
    }
    why = {
        "Gradient norm": "metrics.jsonl has no grad_norm",
        "Learning rate": "metrics.jsonl has no lr",
        "Online kNN": "metrics.jsonl has no knn: the data have no labels, or knn_every=0",
    }
    gaps += [missing(name, why[name]) for name, shown in parts.items() if not shown]
    terms = figures.place(draw.terms(known), title="Loss, term by term", says="The thick line is their sum.")
    return section("training", "Training", terms + grid(*filter(None, parts.values())) + "".join(gaps))
