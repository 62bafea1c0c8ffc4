"""The section with PCA and energy maps."""

from collections.abc import Iterator

import torch

from reglet.diagnostics import as_colours, match_components
from reglet.report.gather import RunData
from reglet.report.gather.maps import LayerMaps, Maps
from reglet.report.page.parts import Section, known
from reglet.report.page.pictures import colours, strip

SIDE = 64


def features(runs: list[RunData]) -> Section:
    found, gaps = known(runs, lambda run: run.maps, "Feature maps")
    return Section("features", "Features", "Features", {"strips": list(strips(found)), "gaps": gaps})


def strips(found: dict[str, Maps]) -> Iterator[tuple[str, str]]:
    """(label, picture as a data URI): images, and under them the layers of each run that saw them."""
    first = next(iter(found.values()), None)
    shown = ""
    for name, one in found.items():
        if one.fingerprint != shown:
            yield "images", strip(one.pictures, side=SIDE)
            shown = one.fingerprint
        for k, layer in enumerate(one.layers):
            same = first is not None and first is not one and first.fingerprint == one.fingerprint
            # the layer of the first run that is shown at the same depth
            yield from _layer(name, layer, first.layers[min(k, len(first.layers) - 1)] if first and same else None)


def _layer(name: str, layer: LayerMaps, reference: LayerMaps | None) -> Iterator[tuple[str, str]]:
    components = layer.components
    if reference is not None and reference.components.shape[:2] == components.shape[:2]:
        components = match_components(components, reference.components)
    energy = torch.nn.functional.interpolate(layer.energy[:, None], size=(SIDE, SIDE), mode="bilinear")
    where = f"{name}, {layer.layer}, {components.shape[2]} x {components.shape[3]}"
    yield f"{where}: PCA", strip(colours(as_colours(components, size=(SIDE, SIDE))))
    yield f"{where}: energy", strip(colours(energy.expand(-1, 3, -1, -1)))
