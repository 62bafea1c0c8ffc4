"""A real Chromium without network, and what a person does with it."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 240  # seconds; a loaded machine draws slowly, and nothing here is about speed


class Browser:
    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, *, width: int = 1200, height: int = 900, scheme: str = "light") -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get_log("browser")  # of the page before
        self.driver.get(path.as_uri())
        self.wait(lambda: self.js("return document.documentElement.dataset.ready"))
        assert self.js("return document.documentElement.dataset.ready") == "true", self.text("#failed")

    def js(self, code: str, *given: Any) -> Any:
        return self.driver.execute_script(code, *given)

    def wait(self, done: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while not (found := done()):
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.1)
        return found

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return str(self.js("return document.querySelector(arguments[0]).textContent", selector))

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def draw_all(self) -> None:
        """Scroll from chart to chart, as a reader does, until all are drawn."""
        count = self.js("return document.querySelectorAll('.chart').length")
        for i in range(count):
            self.js("document.querySelectorAll('.chart')[arguments[0]].scrollIntoView({block: 'center'})", i)
            self.wait(lambda i=i: self.js("return document.querySelectorAll('.chart')[arguments[0]].dataset.drawn", i))

    def draw(self, selector: str) -> None:
        self.js("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self.wait(lambda: self.js("return document.querySelector(arguments[0]).dataset.drawn", selector))

    def point(self, selector: str, index: int) -> tuple[float, float]:
        """Where on the screen the map draws an image."""
        code = """
            const div = document.querySelector(arguments[0]), box = div.getBoundingClientRect(), l = div._fullLayout;
            for (const t of div.data) {
              const k = (t.customdata || []).indexOf(arguments[1]);
              if (k < 0) continue;
              return [box.left + l._size.l + l.xaxis.l2p(t.x[k]), box.top + l._size.t + l.yaxis.l2p(t.y[k])];
            }"""
        x, y = self.js(code, selector, index)
        return x, y

    def hover(self, x: float, y: float) -> None:
        """By real events of the browser, not of a script on the page; done when the image is shown."""
        send = self.driver.execute_cdp_cmd
        send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x - 3, "y": y - 3})
        send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})
        self.wait(lambda: not self.js("return document.getElementById('tip').hidden"))

    def click(self, x: float, y: float, *, until: str) -> Any:
        """Where the mouse is already; again if a busy machine lost the click.  Gives what `until` gives."""
        press = {"x": x, "y": y, "button": "left", "clickCount": 1}

        def pressed() -> Any:
            for kind in ("mousePressed", "mouseReleased"):
                self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, **press})
            end = time.monotonic() + 10
            while not (found := self.js(until)) and time.monotonic() < end:
                time.sleep(0.1)
            return found

        return self.wait(pressed)


def start() -> Browser:
    """Skips, saying so, where there is no Chromium or no selenium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium or no chromedriver on this machine (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--enable-unsafe-swiftshader",  # WebGL without a GPU
        "--host-resolver-rules=MAP * ~NOTFOUND",  # the network is off
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(driver))
    made.set_page_load_timeout(PATIENCE)
    made.set_script_timeout(PATIENCE)
    return Browser(made)
