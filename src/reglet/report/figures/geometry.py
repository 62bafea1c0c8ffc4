"""The shape of the features, beside a healthy run and the network before training."""

from reglet.report.figures.style import SOFT, Figure, Json, colour, dash, layout, numbers, plain
from reglet.report.gather.geometry import Geometry, Shape
from reglet.report.reference import Reference


def spectrum(runs: dict[str, Geometry], healthy: Reference) -> Figure:
    """Eigenvalues over their mean against the share of directions, so that widths can be compared."""
    data = [_band(healthy)]
    for name, shape, style in _shapes(runs):
        floor = 1e-8 * shape.eigenvalues[0]
        kept = [v if v > floor else None for v in shape.eigenvalues]
        data.append(_line([(i + 1) / shape.d for i in range(len(kept))], kept, name, style))
    return {"data": data, "layout": layout("share of directions", "eigenvalue / mean", log_x=True, log_y=True)}


def explained(runs: dict[str, Geometry], healthy: Reference) -> Figure:
    data = [_line(healthy.share, healthy.explained, "healthy reference", {"color": SOFT, "dash": "dot", "width": 4})]
    for name, shape, style in _shapes(runs):
        data.append(_line([(i + 1) / shape.d for i in range(len(shape.explained))], shape.explained, name, style))
    found = layout("share of directions", "explained variance")
    found["yaxis"] |= {"tickformat": ".0%", "range": [0, 1.03]}
    return {"data": data, "layout": found}


def deviations(runs: dict[str, Geometry], healthy: Reference) -> Figure:
    data = [_line(healthy.share, healthy.std, "healthy reference", {"color": SOFT, "dash": "dot", "width": 4})]
    for name, shape, style in _shapes(runs):
        data.append(_line([(i + 1) / shape.d for i in range(shape.d)], shape.std, name, style))
    found = layout("share of dimensions, largest first", "std / mean std")
    found["yaxis"] |= {"rangemode": "tozero"}
    return {"data": data, "layout": found}


def alignment(runs: dict[str, Geometry], healthy: Reference) -> Figure | None:
    """Both are better lower: good runs are at the bottom left, a collapsed one is at the top left."""
    data = [_point(healthy.alignment, healthy.uniformity, "healthy reference", SOFT, "star")]
    for i, (name, found) in enumerate(runs.items()):
        for shape, suffix, mark in (
            (found.trained, "", "circle"),
            (found.untrained, ", before training", "circle-open"),
        ):
            if shape is not None and shape.alignment is not None:
                data.append(_point(shape.alignment, shape.uniformity, name + suffix, colour(i + 1), mark))
    if len(data) == 1:
        return None
    data.append(_point(0.0, 0.0, "collapsed to one point", "var(--c6)", "x"))
    chart = layout("alignment (lower: views closer)", "uniformity (lower: spread)")
    chart["xaxis"] |= {"rangemode": "tozero"}
    return {"data": data, "layout": chart}


def _shapes(runs: dict[str, Geometry]) -> list[tuple[str, Shape, Json]]:
    found: list[tuple[str, Shape, Json]] = []
    for i, (name, geometry) in enumerate(runs.items()):
        found.append((name, geometry.trained, {"color": colour(i + 1), "dash": dash(i), "width": 2.5}))
        if geometry.untrained is not None:
            before = {"color": colour(i + 1), "dash": "dot", "width": 1}
            found.append((f"{name}, before training", geometry.untrained, before))
    return found


def _line(x: list[float], y: list[float] | list[float | None], name: str, style: Json) -> Json:
    return {"type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(y), "name": plain(name), "line": style}


def _band(healthy: Reference) -> Json:
    style = {"color": SOFT, "dash": "dot", "width": 4}
    return _line(healthy.share, healthy.eigenvalues, "healthy reference", style)


def _point(x: float, y: float, name: str, ink: str, mark: str) -> Json:
    marker = {"size": 13, "color": ink, "symbol": mark, "line": {"width": 2, "color": ink}}
    at = {"x": numbers([x]), "y": numbers([y])}
    return {"type": "scatter", "mode": "markers", **at, "name": plain(name), "marker": marker}
