"""What all figures share.  Colours are names of CSS variables, which the page has for light and for dark screens.

The palette is Okabe and Ito's, safe for colour-blind readers; where it ends, it begins again with another symbol.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]
Figure = dict[str, Any]
COLOURS = 8
FACTOR = 30  # between the largest and the smallest value, from which on an axis is logarithmic
SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SOFT, INK, LINE = "var(--soft)", "var(--ink)", "var(--line)"


def colour(i: int) -> str:
    return f"var(--c{i % COLOURS})"


def symbol(i: int) -> str:
    return SYMBOLS[i // COLOURS % len(SYMBOLS)]


def dash(i: int) -> str:
    return DASHES[i % len(DASHES)]


def layout(x: str = "", y: str = "", *, height: int = 320, log_x: bool = False, log_y: bool = False) -> Json:
    return {
        "height": height,
        "margin": {"l": 58, "r": 14, "t": 14, "b": 46},
        "xaxis": axis(x, log=log_x),
        "yaxis": axis(y, log=log_y),
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": SOFT, "activecolor": INK},
        "hoverlabel": {"bgcolor": "var(--card)", "bordercolor": LINE, "font": {"color": INK}},
    }


def heat_map(cells: Json, x: str = "", *, height: int) -> Figure:
    """Rows from the top down, colours from 0 to 1.  cells: x, y, z, and what Plotly shows besides."""
    chart = layout(x, height=height)
    chart["margin"] |= {"t": 34}  # room for the buttons
    chart["yaxis"] |= {"autorange": "reversed", "type": "category"}
    chart["xaxis"] |= {"type": "category"}
    fixed = {"type": "heatmap", "colorscale": "Cividis", "zmin": 0, "zmax": 1, "showscale": False}
    return {"data": [fixed | cells], "layout": chart}


def spans_decades(values: Iterable[float | None]) -> bool:
    """Whether a log axis serves: with less than a decade on it, it may not have a single number."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    return bool(known) and min(known) > 0 and max(known) > FACTOR * min(known)


def axis(title: str, *, log: bool = False) -> Json:
    # d3's own numbers of a log axis are 1, 2, 5 within a decade: too many on a phone
    scale: Json = {"type": "log", "dtick": 1, "exponentformat": "power"} if log else {}
    lines: Json = {"gridcolor": LINE, "zerolinecolor": LINE, "linecolor": LINE, "automargin": True}
    return {"title": {"text": title}, **lines, **scale}


def numbers(values: Sequence[int | float | None], digits: int = 5) -> list[float | None]:
    """Rounded, for a small page; None where there is no number.

    >>> numbers([1 / 3, None, float("inf")])
    [0.33333, None, None]
    """
    return [None if v is None or not math.isfinite(v) else float(f"{v:.{digits}g}") for v in values]


def plain(text: str) -> str:
    """A name as it is: Plotly takes some HTML tags and $TeX$ in texts.

    >>> plain("<b>a</b> & $x$")
    '&lt;b&gt;a&lt;/b&gt; &amp; &#36;x&#36;'
    """
    pairs = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;"))
    for raw, safe in pairs:
        text = text.replace(raw, safe)
    return text
