"""Equivariance by layer and transform, as a heat map."""

from reglet.report.figures.style import Figure, layout, numbers, plain
from reglet.report.gather.equivariance import Equivariance


def heat_map(found: Equivariance) -> Figure:
    """Deepest layer at the bottom.  Numbers stand in the cells: a colour alone would not do."""
    text = [[f"{value:.2f}" for value in row] for row in found.score]
    cells = {
        "type": "heatmap",
        "x": found.transforms,
        "y": [plain(layer) for layer in found.layers],
        "z": [numbers(row, 4) for row in found.score],
        "text": text,
        "texttemplate": "%{text}",
        "customdata": [numbers(row, 3) for row in found.floor],
        "hovertemplate": "%{y}, %{x}: %{z:.3f}<br>places shuffled: %{customdata:.3f}<extra></extra>",
        "colorscale": "Cividis",
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
    }
    chart = layout(height=100 + 40 * len(found.layers))
    chart["margin"] |= {"t": 34}  # room for the buttons
    chart["yaxis"] |= {"autorange": "reversed", "type": "category"}
    chart["xaxis"] |= {"type": "category"}
    return {"data": [cells], "layout": chart}
