"""The embedding map: points by class or by domain, at their t-SNE or PCA places."""

from reglet.report.figures.style import LINE, SOFT, Figure, Json, colour, layout, numbers, plain, symbol
from reglet.report.gather.embedding import Embedding, Latents, Points

SVG = 1500  # points up to which SVG is smooth; above, WebGL


def variants(found: Embedding) -> dict[str, Figure]:
    """ "t-SNE/class" -> figure, for each projection and each thing to colour by ("none" where nothing is known)."""
    groups = found.groups or {"none": ([0] * len(found.neighbours), [""])}
    return {
        f"{plane}/{what}": _map(places, *group, coloured=what != "none")
        for plane, places in found.maps.items()
        for what, group in groups.items()
    }


def _map(places: Points, numbers_of: list[int], names: list[str], *, coloured: bool) -> Figure:
    kind = "scattergl" if len(places) > SVG else "scatter"
    size = 8 if len(places) <= 600 else 6 if len(places) <= 2500 else 4
    data: list[Json] = []
    for i, name in enumerate(names):
        index = [k for k, y in enumerate(numbers_of) if y == i]
        if not index:
            continue
        x, y = places[index].T.tolist()
        marker = {"size": size, "color": colour(i + 1) if coloured else SOFT, "symbol": symbol(i), "opacity": 0.85}
        marker["line"] = {"width": 0.5, "color": "var(--outline)"}
        trace = {"type": kind, "mode": "markers", "x": numbers(x, 4), "y": numbers(y, 4), "customdata": index}
        data.append(trace | {"name": plain(name), "marker": marker, "hoverinfo": "none"})
    return {"data": data, "layout": plane_layout() | {"showlegend": coloured}}


def plane_layout() -> Json:
    """Distances count, places on the axes do not."""
    base = layout(height=460)
    for key in ("xaxis", "yaxis"):
        base[key] |= {"showticklabels": False, "zeroline": False, "showgrid": False, "title": {"text": ""}}
        base[key] |= {"showline": True, "mirror": True, "linecolor": LINE}
    base["yaxis"] |= {"scaleanchor": "x", "scaleratio": 1}
    # the legend below, where the buttons are not
    legend = {"orientation": "h", "y": -0.02, "yanchor": "top", "x": 0}
    return base | {"margin": {"l": 8, "r": 8, "t": 32, "b": 8}, "legend": legend, "dragmode": "pan"}


def latent_variants(found: Latents) -> dict[str, Figure]:
    """Projection -> latents, what they are degraded to and restored to, with a line from each place to the next."""
    return {name: _latent_map(kinds) for name, kinds in found.maps.items()}


def _latent_map(kinds: dict[str, Points]) -> Figure:
    steps: list[float | None] = []
    rises: list[float | None] = []
    for track in zip(*(places.tolist() for places in kinds.values()), strict=True):
        steps += [*(place[0] for place in track), None]
        rises += [*(place[1] for place in track), None]
    lines = {"type": "scatter", "mode": "lines", "x": numbers(steps, 4), "y": numbers(rises, 4), "hoverinfo": "skip"}
    data: list[Json] = [lines | {"line": {"color": LINE, "width": 1}, "name": "from each to the next"}]
    for i, (name, places) in enumerate(kinds.items()):
        x, y = places.T.tolist()
        marker = {"size": 8, "color": colour((5, 6, 3)[i]), "symbol": ("circle", "x", "diamond-open")[i]}
        trace = {"type": "scatter", "mode": "markers", "x": numbers(x, 4), "y": numbers(y, 4), "name": name}
        data.append(trace | {"marker": marker, "hoverinfo": "name"})
    return {"data": data, "layout": plane_layout()}
