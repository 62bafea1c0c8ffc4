"""The section with the map: what the script needs to show images, and the controls."""

from typing import Any

from reglet.report.figures.embedding import latent_variants, variants
from reglet.report.gather import Missing, RunData
from reglet.report.gather.embedding import Embedding
from reglet.report.page.markup import Figures, esc, grid, missing, note, option, section
from reglet.report.page.pictures import sheet

Json = dict[str, Any]


class EmbeddingMaps:
    """Maps by number, and the sheets of pictures that they share."""

    def __init__(self) -> None:
        self.kept: list[Json] = []
        self.sheets: dict[tuple[str, int], Json] = {}
        self.pictures: list[str] = []

    def add(self, found: Embedding) -> int:
        key = (found.fingerprint, len(found.pictures))
        if key not in self.sheets:
            uri, side, columns = sheet(found.pictures)
            self.pictures.append(f'<img class="sheet" id="sheet-{len(self.sheets)}" src="{uri}" alt="" hidden>')
            words = {name: {"of": of, "names": names} for name, (of, names) in found.groups.items()}
            place = {"id": f"sheet-{len(self.sheets)}", "side": side, "columns": columns}
            self.sheets[key] = {**place, "groups": words, "files": found.files}
        number = list(self.sheets).index(key)
        self.kept.append({"sheet": number, "variants": variants(found), "neighbours": found.neighbours.tolist()})
        return len(self.kept) - 1


def embedding(runs: list[RunData], maps: EmbeddingMaps, figures: Figures) -> str:
    cells: list[str] = []
    gaps: list[str] = []
    planes: dict[str, None] = {}
    groups: dict[str, None] = {}
    for run in runs:
        found = run.embedding
        if isinstance(found, Missing):
            gaps.append(missing(f"Map of {run.name}", found))
            continue
        gaps += [missing(f"Map of {run.name}", gap) for gap in found.missing]
        planes |= dict.fromkeys(found.maps)
        groups |= dict.fromkeys(found.groups)
        if not found.groups:
            gaps.append(missing(f"Colours of {run.name}", "the data have neither labels nor domains"))
        cells.append(_map(run.name, maps.add(found), f"{len(found.pictures):,} of {found.of:,} test images"))
    shown = (
        _controls(list(planes), list(groups)) + (grid(*cells) if len(cells) > 1 else cells[0]) + "".join(maps.pictures)
        if cells
        else ""
    )
    return section("map", "Embedding map", shown + "".join(gaps) + latents(runs, figures))


def _controls(planes: list[str], groups: list[str]) -> str:
    by = "".join(option(name, name) for name in groups) or option("none", "nothing")
    return (
        '<div class="controls">'
        f'<label>Projection <select id="plane">{"".join(option(p, p) for p in planes)}</select></label>'
        f'<label>Colour by <select id="group">{by}</select></label></div>'
        + note(
            "Hover shows the image, a click its nearest neighbours by cosine in the full space. By keyboard: focus a "
            "map, arrow keys choose an image. Distances between clusters of a t-SNE mean little."
        )
    )


def _map(name: str, number: int, says: str) -> str:
    return (
        f'<figure class="mapped"><figcaption><b>{esc(name)}</b> {esc(says)}</figcaption>'
        f'<div class="chart map" data-map="{number}" style="height:460px" tabindex="0" role="group" '
        f'aria-label="{esc(f"Embedding map of {name}; arrow keys choose an image")}"></div>'
        f'<div class="picked" data-picked="{number}" aria-live="polite"></div></figure>'
    )


def latents(runs: list[RunData], figures: Figures) -> str:
    """For LatentDR: what it does to latents.  All projections, one under the other."""
    parts = []
    for run in runs:
        if isinstance(run.latents, Missing):
            parts.append(missing(f"Latents of {run.name}", run.latents))
        elif run.latents is not None:
            drawn = latent_variants(run.latents)
            says = "latents of test images, what LatentDR degrades them to, and where it restores them"
            shown = [figures.place(drawn[plane], title=f"{run.name}, {plane}", says=says) for plane in drawn]
            parts.append(grid(*shown))
    return f"<h3>Degraded and restored</h3>{''.join(parts)}" if parts else ""
