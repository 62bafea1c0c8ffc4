"""docs/regularizers.md and its figure have every regularizer of one place, by the names of the command line."""

from xml.etree import ElementTree

import pytest
from benchmarks.collapse_figure import HEIGHT, WIDTH, figure
from benchmarks.regularizers import DRAWN, FIGURE, FILE, REGULARIZERS
from examples.collapse import Push

from reglet.engine.attachments import ONE_PLACE

SVG = "{http://www.w3.org/2000/svg}"


def test_every_regularizer_has_a_row_and_a_push() -> None:
    assert {one.word for one in REGULARIZERS} == set(ONE_PLACE)
    text = FILE.read_text()
    for one in REGULARIZERS:
        assert text.count(f"| `{one.name}` |") == 2, one.name
        assert f"`{one.word}`" in text
    assert f"]({FIGURE.name})" in text


def panels(svg: str) -> dict[str, list[tuple[str, str, list[tuple[float, float]]]]]:
    """By name: stroke, dashes and points of every line."""
    found = {}
    for panel in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        name = next(text.text or "" for text in panel.iter(f"{SVG}text"))
        found[name] = [
            (
                line.attrib["stroke"],
                line.attrib.get("stroke-dasharray", ""),
                [(float(x), float(y)) for x, y in (point.split(",") for point in line.attrib["points"].split())],
            )
            for line in panel.iter(f"{SVG}polyline")
        ]
    return found


def test_every_regularizer_has_a_panel() -> None:
    found = panels(FIGURE.read_text())
    assert list(found) == [one.name for one in REGULARIZERS]
    for lines in found.values():
        _, _, norm = lines[0]
        assert len(norm) == len(DRAWN)
        assert (norm[0][0], norm[-1][0]) == (0, WIDTH)


def test_the_figure_shows_the_numbers() -> None:
    """1e-15 is at the bottom and 1e11 at the top; what points inward is dashed."""
    pushes = [Push(1e11, -1e-2), Push(1e-2, 1e-2), Push(0.0, 1e-15)]
    (lines,) = panels(figure([1e-7, 10**-3.5, 1.0], {"a": pushes})).values()
    half = HEIGHT / 2
    assert lines[0][2] == [(0, 0), (WIDTH / 2, half), (WIDTH, HEIGHT)]
    assert [(dash, points) for _, dash, points in lines[1:]] == [
        ("3 3", [(0, half), (WIDTH / 2, half)]),
        ("", [(WIDTH / 2, half), (WIDTH, HEIGHT)]),
    ]
    assert pytest.approx(10**-3.5) == DRAWN[7]
