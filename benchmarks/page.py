"""How the page's map of 10,000 points moves: time on the wall in headless Chromium, which draws WebGL in software here.

A frame is what a reader waits for: from the wheel or the mouse to the next painted frame.  The ratio is to the
same page with 1,000 points, in turn.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.report.made import cloud, empty

from benchmarks.rows import Row
from benchmarks.timing import spread

ROUNDS, POINTS = 15, (1_000, 10_000)
FRAME = """
const done = arguments[arguments.length - 1], div = document.querySelector('.map'), begin = performance.now();
const painted = () => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)));
"""
ZOOM = FRAME + "const s = 1 + (arguments[0] % 5); Plotly.relayout(div, {'xaxis.range': [-s, s]}).then(painted);"
HOVER = FRAME + (
    "const box = div.querySelector('.nsewdrag').getBoundingClientRect(), k = arguments[0];"
    "div.querySelector('.nsewdrag').dispatchEvent(new MouseEvent('mousemove', {bubbles: true,"
    "clientX: box.left + box.width * (0.3 + 0.02 * k), clientY: box.top + box.height / 2})); painted();"
)


def run() -> Iterator[Row]:
    found: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        drivers = {n: _open(Path(folder) / f"{n}.html", n) for n in POINTS}
        try:
            for k in range(ROUNDS):
                for n, driver in drivers.items():
                    for name, script in (("zoom", ZOOM), ("hover", HOVER)):
                        found.setdefault((name, n), []).append(driver.execute_async_script(script, k))
        finally:
            for driver in drivers.values():
                driver.quit()
    for name in ("zoom", "hover"):
        few, many = (found[name, n][2:] for n in POINTS)
        times = spread(many)
        ratio = spread([b / a for a, b in zip(few, many, strict=True)])
        yield Row(f"map, {name}", "10,000 points", "ms", times.median, low=times.low, high=times.high)
        yield Row(
            f"map, {name}",
            "10,000 points",
            "over",
            ratio.median,
            against="1,000",
            low=ratio.low,
            high=ratio.high,
        )


def _open(path: Path, points: int) -> Any:
    """A browser with a page of so many points, drawn."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    from reglet.report.page.assemble import page

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise ImportError("no chromium or no chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--enable-unsafe-swiftshader"):
        options.add_argument(word)
    path.write_text(page([replace(empty("many"), embedding=cloud(points))]))
    made = webdriver.Chrome(options=options, service=Service(driver))
    made.set_script_timeout(240)
    made.get(path.as_uri())
    made.execute_script("document.querySelector('.map').scrollIntoView({block: 'center'})")
    drawn = "const d = arguments[0], t = setInterval(() => {if (document.querySelector('.map').dataset.drawn)"
    made.execute_async_script(drawn + " {clearInterval(t); d(1);}}, 100);")
    return made
