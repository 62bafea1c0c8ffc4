"""The section on the shape of the features."""

from reglet.report.figures import geometry as draw
from reglet.report.figures import training as curves
from reglet.report.gather import RunData
from reglet.report.gather.geometry import Geometry
from reglet.report.page.parts import Figures, Gap, Section, Table, known
from reglet.report.reference import Reference

HEAD = ["", "effective rank", "of noise, same n and d", "share", "uniformity", "alignment"]


def geometry(runs: list[RunData], figures: Figures, healthy: Reference) -> Section:
    found, gaps = known(runs, lambda run: run.geometry, "Geometry")
    trained, _ = known(runs, lambda run: run.training, "Training")
    rank = figures.place(curves.rank(trained), title="Rank over time")
    if rank is None:
        gaps.append(Gap("Rank over time", "metrics.jsonl has no rank"))
    table, charts = None, []
    if found:
        table = Table("Geometry", HEAD, rows(found, healthy))
        aligned = draw.alignment(found, healthy)
        charts = [
            figures.place(draw.spectrum(found, healthy), title="Eigenspectrum", says="of the covariance"),
            figures.place(draw.explained(found, healthy), title="Explained variance"),
            figures.place(draw.deviations(found, healthy), title="Deviation of each dimension"),
            figures.place(aligned, title="Alignment and uniformity", says="good: bottom left"),
        ]
        if aligned is None:
            gaps.append(Gap("Alignment", "training does not compare two views of an image"))
    shown = {"table": table, "charts": [c for c in (*charts, rank) if c], "reference": healthy.says, "gaps": gaps}
    return Section("geometry", "Geometry", "Geometry", shown)


def rows(found: dict[str, Geometry], healthy: Reference) -> list[list[str]]:
    made = []
    for name, one in found.items():
        for shape, suffix in ((one.trained, ""), (one.untrained, ", before training")):
            if shape is not None:
                share = f"{100 * shape.rank / shape.noise_rank:.0f} %"
                cells = [f"{shape.rank:.1f}", f"{shape.noise_rank:.1f}", share, f"{shape.uniformity:.2f}"]
                made.append([name + suffix, *cells, "" if shape.alignment is None else f"{shape.alignment:.3f}"])
    cells = ["", "", f"{100 * healthy.rank_share:.0f} %", f"{healthy.uniformity:.2f}", f"{healthy.alignment:.3f}"]
    return [*made, ["healthy reference", *cells]]
