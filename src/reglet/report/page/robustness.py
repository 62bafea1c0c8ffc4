"""The section on robustness."""

from reglet.report.figures.robustness import by_severity, heat_map
from reglet.report.gather import Missing, RunData
from reglet.report.page.markup import Figures, esc, grid, missing, note, section


def robustness(runs: list[RunData], figures: Figures) -> str:
    known = {run.name: run.robustness for run in runs if not isinstance(run.robustness, Missing)}
    gaps = [missing(f"Robustness of {run.name}", run.robustness) for run in runs if isinstance(run.robustness, Missing)]
    if not known:
        return section("robustness", "Robustness", "".join(gaps))
    cells = [figures.place(by_severity(known), title="By severity", says="mean of the corruptions")]
    about = []
    for name, found in known.items():
        says = f"{100 * found.clean:.1f} % clean, {100 * found.mean:.1f} % corrupted"
        cells.append(figures.place(heat_map(found), title=name, says=says))
        size = f"{name}: {found.images} test images, severities {', '.join(map(str, found.severities))}"
        error = 50 / found.images**0.5
        coarse = (
            f" (a coarse look, standard error up to {error:.1f} points; reglet robust takes more)"
            if found.coarse
            else ""
        )
        about.append(esc(size + coarse))
    text = "A linear probe on clean features meets corrupted images, accuracy in %. " + "; ".join(about) + "."
    return section("robustness", "Robustness", grid(*cells) + note(text) + "".join(gaps))
