"""ARCHITECTURE.md, CONTRIBUTING.md and the layers of import-linter speak of the tree as it is."""

import re
import tomllib
from pathlib import Path

import pytest
from benchmarks.walks import BEGIN, END, SOURCE, WALKS, by_room, chapters, named

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def test_every_file_of_the_walks_exists() -> None:
    walks = PAGE[PAGE.index(BEGIN) : PAGE.index(END)]
    files = named(walks)
    assert len(files) > 300
    assert [file for file in files if not (SOURCE / file).is_file()] == []
    assert [line for line in walks.splitlines() if line.startswith("### ")] == [
        line for line in walks.splitlines() for title in WALKS if line.startswith(f"### {title}: ")
    ]


def test_rooms_are_the_layers() -> None:
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    wanted = [set(re.findall(r"\w+", layer)) for layer in layers]
    table = PAGE[PAGE.index("| room |") : PAGE.index("The core (")].splitlines()[2:]
    rows = [set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in table if line.startswith("|")]
    assert rows == wanted
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert set().union(*rows) == there - {"__init__", "__main__"}


def test_contributings_map_names_rooms() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    part = text[text.index("## The rooms") : text.index("## Add a loss")]
    for name in set(re.findall(r"`([a-z_.]+)`", part)) - {"pyproject.toml"}:
        assert (SOURCE / name).exists() or (SOURCE / f"{name}.py").exists(), name


def test_a_page_and_not_a_book() -> None:
    assert len(PAGE.splitlines()) < 80


def test_chapters_and_rooms() -> None:
    files = ["cli/a.py", "train.py", "data/b.py", "cli/c.py", "data/d.py"]
    assert chapters(files, [("one", ""), ("two", "train.py")]) == [("one", files[:1]), ("two", files[1:])]
    assert named(by_room(files)) == ["cli/a.py", "cli/c.py", "train.py", "data/b.py", "data/d.py"]
    with pytest.raises(ValueError, match=r"no call of data/x\.py"):
        chapters(files, [("one", ""), ("two", "data/x.py")])
