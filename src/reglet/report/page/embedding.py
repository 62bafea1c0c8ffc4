"""The section with the map: what the script needs to show images, and the controls."""

from reglet.report.figures.embedding import latent_variants, variants
from reglet.report.gather import Missing, RunData
from reglet.report.gather.embedding import Embedding
from reglet.report.page.parts import Chart, Figures, Gap, Json, Section, known
from reglet.report.page.pictures import sheet


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
            words = {name: {"of": of, "names": names} for name, (of, names) in found.groups.items()}
            place = {"id": f"sheet-{len(self.sheets)}", "side": side, "columns": columns}
            self.sheets[key] = {**place, "groups": words, "files": found.files}
            self.pictures.append(uri)
        number = list(self.sheets).index(key)
        self.kept.append({"sheet": number, "variants": variants(found), "neighbours": found.neighbours.tolist()})
        return len(self.kept) - 1


def embedding(runs: list[RunData], maps: EmbeddingMaps, figures: Figures) -> Section:
    found, gaps = known(runs, lambda run: run.embedding, "Map")
    for name, one in found.items():
        gaps += [Gap(f"Map of {name}", gap.why) for gap in one.missing]
        if not one.groups:
            gaps.append(Gap(f"Colours of {name}", "the data have neither labels nor domains"))
    shown = {
        "maps": [
            (maps.add(one), name, f"{len(one.pictures):,} of {one.of:,} test images") for name, one in found.items()
        ],
        "planes": dict.fromkeys(plane for one in found.values() for plane in one.maps),
        "groups": dict.fromkeys(group for one in found.values() for group in one.groups),
        "pictures": maps.pictures,
        "gaps": gaps,
        "latents": latents(runs, figures),
    }
    return Section("map", "Map", "Embedding map", shown)


def latents(runs: list[RunData], figures: Figures) -> list[Gap | list[Chart | None]]:
    """For LatentDR: what it does to latents.  All projections, one under the other."""
    parts: list[Gap | list[Chart | None]] = []
    says = "latents of test images, what LatentDR degrades them to, and where it restores them"
    for run in runs:
        if isinstance(run.latents, Missing):
            parts.append(Gap(f"Latents of {run.name}", run.latents.why))
        elif run.latents is not None:
            drawn = latent_variants(run.latents)
            parts.append([figures.place(drawn[plane], title=f"{run.name}, {plane}", says=says) for plane in drawn])
    return parts
