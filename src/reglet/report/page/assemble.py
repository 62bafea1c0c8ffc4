"""The whole page: sections into the template, with style, script, figures and Plotly inside."""

from datetime import UTC, datetime
from importlib.resources import files
from string import Template

from reglet.report.across import Compared
from reglet.report.gather import RunData
from reglet.report.page.across import across
from reglet.report.page.embedding import EmbeddingMaps, embedding
from reglet.report.page.equivariance import equivariance
from reglet.report.page.features import features
from reglet.report.page.geometry import geometry
from reglet.report.page.markup import Figures, data_json, esc
from reglet.report.page.plotly import packed
from reglet.report.page.repeat import repeat
from reglet.report.page.robustness import robustness
from reglet.report.page.summary import probes_and_cost, summary
from reglet.report.page.training import training
from reglet.report.reference import healthy

NAVIGATION = {
    "summary": "Summary",
    "scores": "Scores",
    "probes": "Scores and cost",
    "across": "Run against run",
    "training": "Training",
    "map": "Map",
    "geometry": "Geometry",
    "features": "Features",
    "equivariance": "Equivariance",
    "robustness": "Robustness",
    "repeat": "Repeat",
}


def page(runs: list[RunData], compared: Compared | None = None) -> str:
    figures, maps = Figures(), EmbeddingMaps()
    sections = {
        "summary": summary(runs, compared),
        "probes": probes_and_cost(runs, figures),
        "across": across(runs, compared, figures),
        "training": training(runs, figures),
        "map": embedding(runs, maps, figures),
        "geometry": geometry(runs, figures, healthy()),
        "features": features(runs),
        "equivariance": equivariance(runs, figures),
        "robustness": robustness(runs, figures),
        "repeat": repeat(runs),
    }
    return assemble(", ".join(run.name for run in runs), sections, figures, maps)


def assemble(title: str, sections: dict[str, str], figures: Figures, maps: EmbeddingMaps | None = None) -> str:
    """Sections by their keys in NAVIGATION; those that are empty are left out."""
    maps = maps or EmbeddingMaps()
    return Template(_file("template.html")).substitute(
        title=esc(title),
        made=esc(datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        style=_file("style.css"),
        navigation="".join(f'<a href="#{key}">{NAVIGATION[key]}</a>' for key, text in sections.items() if text),
        sections="".join(sections.values()),
        data=data_json({"figures": figures.kept, "maps": maps.kept, "sheets": list(maps.sheets.values())}),
        plotly=packed(),
        script=_file("page.js"),
    )


def _file(name: str) -> str:
    return files("reglet.report.page").joinpath(name).read_text(encoding="utf-8")
