"""The section with PCA and energy maps."""

import torch

from reglet.diagnostics import as_colours, match_components
from reglet.report.gather import Missing, RunData
from reglet.report.gather.maps import LayerMaps, Maps
from reglet.report.page.markup import esc, missing, note, section
from reglet.report.page.pictures import colours, strip

SIDE = 64


def features(runs: list[RunData]) -> str:
    known = {run.name: run.maps for run in runs if not isinstance(run.maps, Missing)}
    gaps = [missing(f"Feature maps of {run.name}", run.maps) for run in runs if isinstance(run.maps, Missing)]
    if not known:
        return section("features", "Features", "".join(gaps))
    rows: list[str] = []
    first = next(iter(known.values()))
    shown = ""
    for name, found in known.items():
        if found.fingerprint != shown:
            rows.append(_row("images", strip(found.pictures, side=SIDE)))
            shown = found.fingerprint
        same = found.fingerprint == first.fingerprint
        for k, layer in enumerate(found.layers):
            rows += _layer(name, layer, _counterpart(first, k) if same and found is not first else None)
    about = note(
        "PCA maps: the first three principal components of a layer's tokens as red, green and blue, fitted on 64 "
        "images. Those of later runs are matched with the first run's, in order and sign. Energy: the sum of squares "
        "over channels, dark where least."
    )
    body = f'<div class="wide strips" tabindex="0" role="region" aria-label="Feature maps">{"".join(rows)}</div>'
    return section("features", "Features", body + about + "".join(gaps))


def _counterpart(first: Maps, k: int) -> LayerMaps:
    """The layer of the first run that is shown at the same depth."""
    return first.layers[min(k, len(first.layers) - 1)]


def _layer(name: str, layer: LayerMaps, reference: LayerMaps | None) -> list[str]:
    components = layer.components
    if reference is not None and reference.components.shape[:2] == components.shape[:2]:
        components = match_components(components, reference.components)
    painted = colours(as_colours(components, size=(SIDE, SIDE)))
    energy = torch.nn.functional.interpolate(layer.energy[:, None], size=(SIDE, SIDE), mode="bilinear")
    where = f"{name}, {layer.layer}, {components.shape[2]} x {components.shape[3]}"
    return [
        _row(f"{where}: PCA", strip(painted)),
        _row(f"{where}: energy", strip(colours(energy.expand(-1, 3, -1, -1)))),
    ]


def _row(label: str, uri: str) -> str:
    return f'<figure class="strip"><figcaption>{esc(label)}</figcaption><img src="{uri}" alt="{esc(label)}"></figure>'
