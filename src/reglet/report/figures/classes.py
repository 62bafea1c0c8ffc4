"""Class by class: what was taken for what."""

from reglet.evaluate.classes import ByClass
from reglet.report.figures.style import Figure, heat_map, numbers, plain

MOST = 40  # classes whose names can be read


def confusions(found: ByClass) -> Figure | None:
    """Rows are the true classes, with their accuracy; a row's colours are shares of its images."""
    if len(found.names) > MOST:
        return None
    names = [plain(name) for name in found.names]
    labels = [
        f"{name}  {'-' if share is None else f'{100 * share:.0f} %'}"
        for name, share in zip(names, found.accuracy, strict=True)
    ]
    shares = [[n / max(1, sum(row)) for n in row] for row in found.table]
    few = len(names) <= 15
    cells = {
        "x": names,
        "y": labels,
        "z": [numbers(row, 4) for row in shares],
        "customdata": found.table,
        "text": [[str(n) if n else "" for n in row] for row in found.table] if few else None,
        "texttemplate": "%{text}" if few else "",
        "hovertemplate": "%{y}<br>taken for %{x}: %{customdata} (%{z:.0%})<extra></extra>",
    }
    return heat_map(cells, "taken for", height=130 + max(24 * len(names), 100))
