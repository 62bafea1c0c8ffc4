"""Accuracy by corruption and severity."""

from reglet.report.figures.style import SOFT, Figure, Json, colour, dash, layout, numbers, plain
from reglet.report.gather.robustness import Robustness


def heat_map(found: Robustness) -> Figure:
    names = list(found.accuracy)
    rows = [found.accuracy[name] for name in names]
    cells = {
        "type": "heatmap",
        "x": [f"severity {s}" for s in found.severities],
        "y": [name.replace("_", " ") for name in names],
        "z": [numbers(row, 4) for row in rows],
        "text": [[f"{100 * a:.0f}" for a in row] for row in rows],
        "texttemplate": "%{text}",
        "hovertemplate": "%{y}, %{x}: %{z:.1%}<extra></extra>",
        "colorscale": "Cividis",
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
    }
    chart = layout(height=100 + 24 * len(names))
    chart["margin"] |= {"t": 34}  # room for the buttons
    chart["yaxis"] |= {"autorange": "reversed", "type": "category"}
    chart["xaxis"] |= {"type": "category"}
    return {"data": [cells], "layout": chart}


def by_severity(runs: dict[str, Robustness]) -> Figure:
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
