"""The section on the shape of the features."""

from reglet.report.figures import geometry as draw
from reglet.report.figures import training as curves
from reglet.report.gather import Missing, RunData
from reglet.report.page.markup import Figures, esc, grid, missing, note, section, table
from reglet.report.reference import Reference


def geometry(runs: list[RunData], figures: Figures, healthy: Reference) -> str:
    known = {run.name: run.geometry for run in runs if not isinstance(run.geometry, Missing)}
    gaps = [missing(f"Geometry of {run.name}", run.geometry) for run in runs if isinstance(run.geometry, Missing)]
    trained = {run.name: run.training for run in runs if not isinstance(run.training, Missing)}
    over_time = figures.place(curves.rank(trained), title="Rank over time") if trained else ""
    if not over_time:
        gaps.append(missing("Rank over time", "metrics.jsonl has no rank"))
    if not known:
        return section("geometry", "Geometry", over_time + "".join(gaps))
    aligned = figures.place(draw.alignment(known, healthy), title="Alignment and uniformity", says="good: bottom left")
    if not aligned:
        gaps.append(missing("Alignment", "training does not compare two views of an image"))
    rows = []
    for name, found in known.items():
        for shape, suffix in ((found.trained, ""), (found.untrained, ", before training")):
            if shape is not None:
                share = f"{100 * shape.rank / shape.noise_rank:.0f} %"
                cells = [f"{shape.rank:.1f}", f"{shape.noise_rank:.1f}", share, f"{shape.uniformity:.2f}"]
                cells.append("" if shape.alignment is None else f"{shape.alignment:.3f}")
                rows.append([esc(name + suffix), *cells])
    cells = ["", "", f"{100 * healthy.rank_share:.0f} %", f"{healthy.uniformity:.2f}", f"{healthy.alignment:.3f}"]
    rows.append(["healthy reference", *cells])
    head = ["", "effective rank", "of noise, same n and d", "share", "uniformity", "alignment"]
    charts = grid(
        figures.place(draw.spectrum(known, healthy), title="Eigenspectrum", says="of the covariance"),
        figures.place(draw.explained(known, healthy), title="Explained variance"),
        figures.place(draw.deviations(known, healthy), title="Deviation of each dimension"),
        aligned,
        over_time,
    )
    about = note(
        f"The reference, which the doctor finds healthy: {esc(healthy.says)}. It shows one shape, not a limit: other "
        "data and networks have other spectra."
    )
    return section("geometry", "Geometry", table(head, rows, label="Geometry") + charts + about + "".join(gaps))
