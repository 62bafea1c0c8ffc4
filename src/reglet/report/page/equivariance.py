"""The section on equivariance."""

from reglet.report.figures.equivariance import heat_map
from reglet.report.gather import RunData
from reglet.report.page.parts import Figures, Section, known


def equivariance(runs: list[RunData], figures: Figures) -> Section:
    found, gaps = known(runs, lambda run: run.equivariance, "Equivariance")
    charts = [figures.place(heat_map(one), title=name, says=f"{one.images} test images") for name, one in found.items()]
    return Section("equivariance", "Equivariance", "Equivariance", {"charts": charts, "gaps": gaps})
