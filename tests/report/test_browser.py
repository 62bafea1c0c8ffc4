"""The page in a real Chromium, from a file, with the network off."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.browser import Browser, start
from tests.report.conftest import CLASSES, DOMAINS
from tests.report.made import cloud, empty

from reglet.report import write_report
from reglet.report.page.assemble import page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = start()
    yield made
    made.driver.quit()


@pytest.fixture(scope="module")
def written(run: Path, other: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([run, other], tmp_path_factory.mktemp("pages") / "a page.html", robust_images=8)


def test_it_loads_whole_and_alone(browser: Browser, written: Path) -> None:
    browser.driver.get_log("performance")
    browser.open(written)
    browser.draw_all()
    assert browser.complaints() == []
    events = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert [url for url in asked if url.startswith("file:")] == [written.as_uri()]
    widths = browser.js("return [...document.images].map(image => image.complete && image.naturalWidth)")
    assert len(widths) > 3
    assert min(widths) > 0
    empty_charts = "return [...document.querySelectorAll('.chart')].filter(c => !c.querySelector('.main-svg')).length"
    assert browser.js(empty_charts) == 0


def test_names_are_shown_and_not_obeyed(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.draw("[data-map='0']")
    legend = "return [...document.querySelectorAll(\"[data-map='0'] .legendtext\")].map(t => t.textContent)"
    assert browser.js(legend) == CLASSES
    assert browser.js("return document.querySelectorAll('img[src=x]').length") == 0
    assert browser.text("h1") == "reglet report: <i>first, second"
    assert browser.complaints() == []


def test_hover_shows_the_image_and_click_its_neighbours(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.draw("[data-map='0']")
    data = browser.js("return JSON.parse(document.getElementById('data').textContent)")
    sheet, index = data["sheets"][0], 20
    at = browser.point("[data-map='0']", index)
    browser.hover(*at)
    shown = browser.text("#tip span")
    lines = [f"{kind} {group['names'][group['of'][index]]}" for kind, group in sheet["groups"].items()]
    assert shown == "\n".join([*lines, sheet["files"][index]])
    pixels = "return [...document.querySelector('#tip canvas').getContext('2d').getImageData(0, 0, 16, 16).data]"
    painted = browser.js(pixels)
    # the bright half of the picture is that of its class
    rows = [sum(painted[4 * 16 * r : 4 * 16 * (r + 1)]) for r in range(16)]
    assert (sum(rows[:8]) > sum(rows[8:])) == (sheet["groups"]["class"]["of"][index] == 0)

    browser.click(*at, until="return document.querySelectorAll('.picked button').length")
    for number in (0, 1):  # and in the other run, which saw the same images
        tiles = f"return [...document.querySelectorAll(\"[data-picked='{number}'] button\")].map(b => +b.dataset.index)"
        assert browser.js(tiles) == [index, *data["maps"][number]["neighbours"][index]]
    rings = browser.js("return document.querySelector(\"[data-map='0']\").data.slice(-2).map(t => t.x.length)")
    assert rings == [8, 1]
    assert browser.complaints() == []


def test_switching_projection_colour_and_scheme(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.draw("[data-map='1']")
    browser.draw("[data-map='0']")
    now = "const d = document.querySelector(arguments[0]).data; return d.map(t => [t.name, t.x, t.marker.color])"
    data = browser.js("return JSON.parse(document.getElementById('data').textContent)")

    def choose(key: str, value: str) -> None:
        code = "const s = arguments[0]; s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
        browser.js(code, browser.find(key), value)

    assert browser.js("return [...document.querySelectorAll('#plane option')].map(o => o.value)") == ["t-SNE", "PCA"]
    choose("#plane", "PCA")
    choose("#group", "domain")
    for number in (0, 1):
        traces = browser.js(now, f"[data-map='{number}']")
        wanted = data["maps"][number]["variants"]["PCA/domain"]["data"]
        assert [t[0] for t in traces] == [t["name"] for t in wanted]
        assert [t[1] for t in traces] == [t["x"] for t in wanted]
    legend = "return [...document.querySelectorAll(\"[data-map='0'] .legendtext\")].map(t => t.textContent)"
    assert browser.js(legend) == DOMAINS
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = browser.js(ground), browser.js(now, "[data-map='0']")[0][2]
    browser.find("#theme").click()  # auto -> light
    assert browser.js(ground) == before[0]
    browser.find("#theme").click()  # light -> dark
    assert browser.js(ground) == "rgb(21, 22, 26)"
    assert browser.js(now, "[data-map='0']")[0][2] != before[1]
    browser.open(written, scheme="dark")
    assert browser.js(ground) == "rgb(21, 22, 26)"
    assert browser.complaints() == []


def test_everything_can_be_reached_by_keyboard(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.draw("[data-map='0']")
    chart = browser.find("[data-map='0']")
    browser.js("arguments[0].focus({preventScroll: true})", chart)
    chart.send_keys("\ue014")  # arrow right
    first = browser.wait(lambda: browser.js("return document.querySelector('.picked button')?.dataset.index"))
    chart.send_keys("\ue014")
    browser.wait(lambda: browser.js("return document.querySelector('.picked button').dataset.index") != first)
    browser.draw("#training [data-figure]")
    line = browser.find("#training [data-figure]")
    browser.js("arguments[0].focus({preventScroll: true})", line)
    line.send_keys("\ue014")
    browser.wait(lambda: browser.js("return arguments[0].querySelector('.hoverlayer').childNodes.length", line))
    stops = browser.js("return [...document.querySelectorAll('a, button, select, summary, .chart, .wide')].length")
    assert browser.js("return [...document.querySelectorAll('[tabindex=\"-1\"]')].length") < stops
    assert browser.complaints() == []


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, written: Path) -> None:
    browser.open(written, width=360, height=740)
    browser.draw_all()
    assert browser.js("return document.documentElement.scrollWidth") <= 360
    assert browser.complaints() == []


def test_ten_thousand_points(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "many.html"
    path.write_text(page([replace(empty("many"), embedding=cloud(10_000))]))
    browser.open(path)
    browser.draw(".map")
    kinds = browser.js("return [...new Set(document.querySelector('.map').data.map(t => t.type))]")
    assert kinds == ["scattergl"]
    at = browser.point(".map", 4321)
    browser.hover(*at)
    picked = browser.click(*at, until="return document.querySelector('.picked button')?.dataset.index")
    data = browser.js("return JSON.parse(document.getElementById('data').textContent).maps[0].neighbours")
    assert len(data) == 10_000
    tiles = browser.js("return [...document.querySelectorAll('.picked button')].map(b => +b.dataset.index)")
    assert tiles == [int(picked), *data[int(picked)]]  # points lie close: it may be a neighbour on the screen
    assert browser.complaints() == []


def test_a_page_of_nothing_says_so(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    path.write_text(page([empty("<script>alert(3)</script>")]))
    browser.open(path)
    assert "not shown. it was made by hand" in browser.text("main")
    assert browser.text("h1") == "reglet report: <script>alert(3)</script>"
    assert browser.complaints() == []
