"""The page: self-contained, escaped, whole where a run is not, and of a size that mail takes."""

import json
import re
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from jinja2 import UndefinedError
from tests.report.conftest import CLASSES, DOMAINS
from tests.report.made import cloud, empty

from reglet.data import load
from reglet.report import write_report
from reglet.report.gather import gather
from reglet.report.page.assemble import page
from reglet.report.page.pictures import sheet, strip
from reglet.report.page.render import environment, render
from reglet.report.task import task_page
from reglet.report.write import names, write_text

SECTIONS = ["summary", "probes", "training", "map", "geometry", "features", "equivariance", "robustness", "repeat"]


class Reader(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@pytest.fixture(scope="module")
def written(run: Path, other: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "new" / "report.html"
    assert write_report([run, other], out, robust_images=8) == out
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]  # nothing is left of the writing
    return out.read_text()


def test_sections_in_their_order(written: str) -> None:
    seen = [tag["id"] for name, tag in Reader(written).tags if name == "section"]
    assert seen == [*SECTIONS[:2], "across", *SECTIONS[2:]]
    links = [tag["href"] for name, tag in Reader(written).tags if name == "a"]
    assert all(link.removeprefix("#") in seen for link in links)


def test_nothing_is_fetched(written: str) -> None:
    for name, attributes in Reader(written).tags:
        for key in ("src", "href", "srcset", "data", "action", "poster"):
            link = attributes.get(key)
            assert link is None or link.startswith(("data:", "#")), (name, link)
    style = written[written.index("<style>") : written.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_names_are_text(written: str) -> None:
    found = Reader(written)
    scripts = [tag for name, tag in found.tags if name == "script"]
    assert len(scripts) == 3  # data, Plotly, the page's own
    assert not [tag for _, tag in found.tags if "onerror" in tag]
    assert "reglet report: <i>first, second" in found.text
    data = json.loads(re.search(r'id="data">(.*?)</script>', written, re.DOTALL).group(1))
    assert data["sheets"][0]["groups"]["class"]["names"] == CLASSES
    assert CLASSES[1] not in written


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The same, with names exchanged in every string, however deep; tensors are left."""
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: renamed(getattr(value, f.name), names) for f in fields(value) if f.init})
    if isinstance(value, dict):
        return {renamed(key, names): renamed(one, names) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(renamed(one, names) for one in value)
    return value


def test_a_name_is_text_wherever_it_stands(run: Path, other: Path) -> None:
    """The page of runs with evil names is that of the same runs with tame ones, but for the names."""
    evil = ["<i>first", *CLASSES, *DOMAINS, "it's <"]
    tame = {name: f"tame{i}" for i, name in enumerate(evil)}
    runs = [gather(run, name="<i>first", robust_images=4), gather(other, name="second", robust_images=4)]
    found, wanted = Reader(page(runs)), Reader(page(renamed(runs, tame)))
    assert renamed(found.tags, tame) == wanted.tags
    assert renamed(found.text, tame) == wanted.text
    for name in ("tame0", "tame1", "tame3", "tame4"):
        assert name in wanted.text


def test_the_names_of_a_task_are_text(tmp_path: Path) -> None:
    evil = "<script>{{7*7}}"
    mean = {"mean": 0.5, "standard_error": None}
    config = {"model": evil, "loss": evil, "seeds": 1, "selection": evil, "sim_weight": 0.1}
    report = {"task": evil, "config": config, "blocks": [evil]}
    pages = [
        {**report, "scores": {evil: {"without": mean, "with": None}}},
        {**report, "held_out": [{"domain": evil, **mean}], "average": mean},
    ]
    for one in pages:
        found, wanted = Reader(task_page(tmp_path, one)), Reader(task_page(tmp_path, renamed(one, {evil: "tame"})))
        assert found.tags == wanted.tags
        assert renamed(found.text, {evil: "tame"}) == wanted.text
        assert wanted.text.count("tame") >= 4


def test_json_in_a_script_cannot_end_it() -> None:
    shown = environment().from_string("{{ data | tojson }}")
    text = shown.render(data={"a": "</script><!-- \u2028 &"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!-- \u2028 &"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        shown.render(data=float("nan"))


def test_the_numbers_of_the_run_are_on_the_page(written: str, run: Path) -> None:
    text = Reader(written).text
    config = json.loads((run / "config.json").read_text())
    assert config["fingerprint"] in text
    assert f"torch{torch.__version__}" in text
    assert "reglet pretrain " in text
    assert "loss.slices=16" in text
    verdict = json.loads((run / "doctor.json").read_text())["verdict"]
    assert verdict in text
    assert "36 test images" in text or "on the same 36 test images" in text
    assert "8 test images, severities 1, 3, 5 (a coarse look" in text


def test_runs_share_the_pictures_of_the_same_images(written: str) -> None:
    sheets = [tag for name, tag in Reader(written).tags if name == "img" and tag.get("class") == "sheet"]
    assert len(sheets) == 1
    data = json.loads(re.search(r'id="data">(.*?)</script>', written, re.DOTALL).group(1))
    assert [one["sheet"] for one in data["maps"]] == [0, 0]


def test_every_part_can_be_missing() -> None:
    found = Reader(page([empty()]))
    assert [tag["id"] for name, tag in found.tags if name == "section"] == SECTIONS
    titles = ("Verdict", "Probes of", "Training of", "Map of", "Geometry of", "Feature maps", "Equivariance", "Robust")
    for what in titles:
        assert what in found.text
    assert found.text.count("it was made by hand") >= 8


def test_ten_thousand_points_fit() -> None:
    many = replace(empty(), embedding=cloud(10_000))
    assert len(page([many])) < 6e6


def test_the_pictures_of_a_demo_run_are_small() -> None:
    digits = load("digits", split="test")
    uri, side, columns = sheet(digits.batch(torch.arange(500)))
    assert (side, columns) == (32, 23)
    assert len(uri) < 1e6


def test_a_sheet_has_each_picture_in_its_place() -> None:
    import base64
    import io

    import numpy as np
    from PIL import Image

    flat = torch.tensor([0, 60, 120, 180, 240], dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 16, 16)
    uri, side, columns = sheet(flat)
    assert (side, columns) == (16, 3)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))))
    assert pixels.shape == (32, 48, 3)
    for i, grey in enumerate((0, 60, 120, 180, 240)):
        y, x = divmod(i, columns)
        tile = pixels[16 * y + 4 : 16 * y + 12, 16 * x + 4 : 16 * x + 12]
        assert abs(tile.astype(int) - grey).max() <= 6  # WebP at quality 75
    assert strip(flat).startswith("data:image/webp;base64,")


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_names_tell_runs_apart() -> None:
    assert names([Path("runs/a")]) == ["a"]
    assert names([Path("x/a"), Path("y/a"), Path("y/b")]) == ["x/a", "y/a", "y/b"]


def test_a_template_that_is_given_too_little_says_so() -> None:
    with pytest.raises(UndefinedError, match="'title' is undefined"):
        render("page.html")


def test_plotly_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from reglet.report.page import render

    def absent(_: str) -> None:
        raise ModuleNotFoundError("No module named 'plotly'")

    monkeypatch.setattr(render, "files", absent)
    with pytest.raises(ImportError, match=r"pip install 'reglet\[report\]'"):
        render.packed.__wrapped__()
