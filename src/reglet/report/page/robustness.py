"""The sections on equivariance and on robustness: what changes of the image do."""

from reglet.report.figures.robustness import by_corruption, by_layer, by_severity
from reglet.report.gather import RunData
from reglet.report.page.parts import Figures, Section, known


def equivariance(runs: list[RunData], figures: Figures) -> Section:
    found, gaps = known(runs, lambda run: run.equivariance, "Equivariance")
    charts = [figures.place(by_layer(one), title=name, says=f"{one.images} test images") for name, one in found.items()]
    return Section("equivariance", "Equivariance", "Equivariance", {"charts": charts, "gaps": gaps})


def robustness(runs: list[RunData], figures: Figures) -> Section:
    found, gaps = known(runs, lambda run: run.robustness, "Robustness")
    charts, about = [], []
    if found:
        charts.append(figures.place(by_severity(found), title="By severity", says="mean of the corruptions"))
    for name, one in found.items():
        says = f"{100 * one.clean:.1f} % clean, {100 * one.mean:.1f} % corrupted"
        charts.append(figures.place(by_corruption(one), title=name, says=says))
        size = f"{name}: {one.images} test images, severities {', '.join(map(str, one.severities))}"
        error = 50 / one.images**0.5
        coarse = f" (a coarse look, standard error up to {error:.1f} points; reglet robust takes more)"
        about.append(size + (coarse if one.coarse else ""))
    shown = {"charts": charts, "about": "; ".join(about), "gaps": gaps}
    return Section("robustness", "Robustness", "Robustness", shown)
