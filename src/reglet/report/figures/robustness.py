"""What changes of the image do: equivariance by layer and transform, accuracy by corruption and severity."""

from reglet.report.figures.style import SOFT, Figure, Json, colour, dash, heat_map, layout, numbers, plain
from reglet.report.gather.robustness import CorruptionTable, Equivariance


def by_layer(found: Equivariance) -> Figure:
    """Deepest layer at the bottom.  Numbers stand in the cells: a colour alone would not do."""
    cells = {
        "x": found.transforms,
        "y": [plain(layer) for layer in found.layers],
        "z": [numbers(row, 4) for row in found.score],
        "text": [[f"{value:.2f}" for value in row] for row in found.score],
        "texttemplate": "%{text}",
        "customdata": [numbers(row, 3) for row in found.floor],
        "hovertemplate": "%{y}, %{x}: %{z:.3f}<br>places shuffled: %{customdata:.3f}<extra></extra>",
    }
    return heat_map(cells, height=100 + 40 * len(found.layers))


def by_corruption(found: CorruptionTable) -> Figure:
    names = list(found.accuracy)
    rows = [found.accuracy[name] for name in names]
    cells = {
        "x": [f"severity {s}" for s in found.severities],
        "y": [name.replace("_", " ") for name in names],
        "z": [numbers(row, 4) for row in rows],
        "text": [[f"{100 * a:.0f}" for a in row] for row in rows],
        "texttemplate": "%{text}",
        "hovertemplate": "%{y}, %{x}: %{z:.1%}<extra></extra>",
    }
    return heat_map(cells, height=100 + 24 * len(names))


def by_severity(runs: dict[str, CorruptionTable]) -> Figure:
    """The mean over corruptions against severity, with the clean figure at 0."""
    data: list[Json] = []
    for i, (name, found) in enumerate(runs.items()):
        means = [
            sum(row[k] for row in found.accuracy.values()) / len(found.accuracy) for k in range(len(found.severities))
        ]
        trace = {"type": "scatter", "mode": "lines+markers", "x": [0, *found.severities], "name": plain(name)}
        style = {"color": colour(i + 1), "dash": dash(i), "width": 2.5}
        data.append(trace | {"y": numbers([found.clean, *means]), "line": style, "marker": {"size": 8}})
    chart = layout("severity (0: clean)", "accuracy", height=300)
    chart["yaxis"] |= {"tickformat": ".0%", "rangemode": "tozero"}
    chart["xaxis"] |= {"dtick": 1}
    return {"data": data, "layout": chart | {"showlegend": len(runs) > 1, "shapes": [_zero()]}}


def _zero() -> Json:
    return {"type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper", "line": {"color": SOFT, "dash": "dot"}}
