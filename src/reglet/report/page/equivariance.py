"""The section on equivariance."""

from reglet.report.figures.equivariance import heat_map
from reglet.report.gather import Missing, RunData
from reglet.report.page.markup import Figures, grid, missing, note, section


def equivariance(runs: list[RunData], figures: Figures) -> str:
    cells, gaps = [], []
    for run in runs:
        if isinstance(run.equivariance, Missing):
            gaps.append(missing(f"Equivariance of {run.name}", run.equivariance))
        else:
            says = f"{run.equivariance.images} test images"
            cells.append(figures.place(heat_map(run.equivariance), title=run.name, says=says))
    about = note(
        "How far the map of a transformed image is the transformed map of the image: the cosine of tokens at the same "
        "place, without the mean token that all share. 1 is exact; hover shows what shuffled places score. Resizing "
        "and shifting lose detail, so that 1 is out of reach there."
    )
    body = grid(*cells) + (about if cells else "") + "".join(gaps)
    return section("equivariance", "Equivariance", body)
