"""The whole page: sections into the template, with style, script, figures and Plotly inside."""

from datetime import UTC, datetime

from reglet.report.across import Compared
from reglet.report.gather import RunData
from reglet.report.page.across import across
from reglet.report.page.embedding import EmbeddingMaps, embedding
from reglet.report.page.features import features
from reglet.report.page.geometry import geometry
from reglet.report.page.parts import Figures, Section
from reglet.report.page.probes import probes
from reglet.report.page.render import packed, render
from reglet.report.page.repeat import repeat
from reglet.report.page.robustness import equivariance, robustness
from reglet.report.page.summary import summary
from reglet.report.page.training import training
from reglet.report.reference import healthy


def page(runs: list[RunData], compared: Compared | None = None) -> str:
    figures, maps = Figures(), EmbeddingMaps()
    sections = [
        summary(runs, compared),
        probes(runs, figures),
        *([across(runs, compared, figures)] if len(runs) > 1 else []),
        training(runs, figures),
        embedding(runs, maps, figures),
        geometry(runs, figures, healthy()),
        features(runs),
        equivariance(runs, figures),
        robustness(runs, figures),
        repeat(runs),
    ]
    return assemble(", ".join(run.name for run in runs), sections, figures, maps)


def assemble(title: str, sections: list[Section], figures: Figures, maps: EmbeddingMaps | None = None) -> str:
    maps = maps or EmbeddingMaps()
    return render(
        "page.html",
        title=title,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        sections=sections,
        data={"figures": figures.kept, "maps": maps.kept, "sheets": list(maps.sheets.values())},
        plotly=packed(),
    )
