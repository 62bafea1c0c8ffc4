"""Differences between runs, with their intervals."""

from reglet.report.across import PROBES, Difference
from reglet.report.figures.style import SOFT, Figure, Json, colour, layout, numbers, plain


def differences(found: list[Difference]) -> Figure:
    """A row for each difference; what reaches the dotted line at zero is not resolved."""
    data: list[Json] = []
    probes = list(dict.fromkeys(d.probe for d in found))
    for i, probe in enumerate(probes):
        rows = [d for d in found if d.probe == probe]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": numbers([100 * d.difference for d in rows]),
                "y": [plain(f"{d.candidate} minus {d.base}, {PROBES.get(probe, probe)}") for d in rows],
                "error_x": {
                    "type": "data",
                    "symmetric": True,
                    "array": numbers([100 * (d.high - d.difference) for d in rows]),
                    "color": colour(i + 1),
                },
                "marker": {"size": 10, "color": colour(i + 1), "symbol": ("circle", "diamond")[i % 2]},
                "name": PROBES.get(probe, probe),
            }
        )
    chart = layout("difference in accuracy, points, with 95 % interval", height=90 + 36 * len(found))
    chart["xaxis"] |= {"zeroline": True, "zerolinecolor": SOFT, "zerolinewidth": 2, "rangemode": "tozero"}
    chart["yaxis"] |= {"type": "category", "autorange": "reversed"}
    return {"data": data, "layout": chart | {"showlegend": False}}
