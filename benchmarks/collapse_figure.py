"""The collapse figure of every regularizer as SVG: one small panel each, all with the same axes."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Protocol

ACROSS, WIDTH, HEIGHT, GAP, TOP, LEFT = 4, 160, 110, 14, 40, 44
SMALL = -7  # decades of r, up to 1
LOW, HIGH = -15, 11  # and of the gradient
NORM, OUTWARD = "#0969da", "#bc4c00"


class Push(Protocol):
    """As `examples/collapse.py` has it."""

    @property
    def norm(self) -> float: ...

    @property
    def outward(self) -> float: ...


def figure(radii: Sequence[float], pushes: Mapping[str, Sequence[Push]]) -> str:
    """radii: from 1e-7 to 1.  pushes: of each regularizer, at every radius."""
    down = -(-len(pushes) // ACROSS)
    width, height = LEFT + ACROSS * (WIDTH + GAP), TOP + down * (HEIGHT + 2 * GAP) + 26
    marks = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="10">',
        f'<rect width="100%" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="16" fill="{NORM}">gradient norm of a sample</text>',
        f'<text x="{LEFT + 150}" y="16" fill="{OUTWARD}">its part away from the centre (dashed: towards it)</text>',
        f'<text x="{width / 2:g}" y="{height - 6}" text-anchor="middle">length r of the embeddings</text>',
    ]
    for i, (name, found) in enumerate(pushes.items()):
        x, y = LEFT + i % ACROSS * (WIDTH + GAP), TOP + i // ACROSS * (HEIGHT + 2 * GAP)
        bottom = i + ACROSS >= len(pushes)
        marks.append(f'<g transform="translate({x} {y})">')
        marks += _frame(name, numbers_left=i % ACROSS == 0, numbers_below=bottom)
        marks += _line(radii, [push.norm for push in found], NORM)
        marks += _signed(radii, [push.outward for push in found])
        marks.append("</g>")
    return "\n".join([*marks, "</svg>", ""])


def _x(r: float) -> float:
    return round((1 - math.log10(r) / SMALL) * WIDTH, 1)


def _y(value: float) -> float:
    decade = min(max(math.log10(value), LOW), HIGH) if value > 0 else LOW
    return round((HIGH - decade) / (HIGH - LOW) * HEIGHT, 1)


def _frame(name: str, *, numbers_left: bool, numbers_below: bool) -> list[str]:
    marks = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>',
        f'<text x="0" y="-4" font-weight="bold">{escape(name)}</text>',
    ]
    for decade in range(-12, HIGH, 6):
        y = _y(10.0**decade)
        marks.append(f'<line x1="0" x2="{WIDTH}" y1="{y}" y2="{y}" stroke="#eee"/>')
        if numbers_left:
            marks.append(f'<text x="-4" y="{y + 3}" text-anchor="end">1e{decade}</text>')
    if numbers_below:
        ends = ((10.0**SMALL, "start"), (1.0, "end"))
        marks += [f'<text x="{_x(r)}" y="{HEIGHT + 12}" text-anchor="{at}">{r:g}</text>' for r, at in ends]
    return marks


def _line(radii: Sequence[float], values: Sequence[float], colour: str, *, dash: str = "") -> list[str]:
    points = " ".join(f"{_x(r)},{_y(value)}" for r, value in zip(radii, values, strict=True))
    return [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>']


def _signed(radii: Sequence[float], values: Sequence[float]) -> list[str]:
    """|values|: solid where they are positive, dashed where not.  A piece goes on to the first point of the next."""
    marks: list[str] = []
    for positive, run in groupby(range(len(values)), lambda i: values[i] > 0):
        piece = list(run)
        piece += [piece[-1] + 1] if piece[-1] + 1 < len(values) else []
        dash = "" if positive else ' stroke-dasharray="3 3"'
        marks += _line([radii[i] for i in piece], [abs(values[i]) for i in piece], OUTWARD, dash=dash)
    return marks
