"""What a stranger gets: a wheel whose description has working links, and one place for each fact."""

import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import reglet

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to), str(ROOT)]
    subprocess.run(words, check=True, capture_output=True)
    return to


def test_the_wheel_passes_twine_and_has_the_package(dist: Path) -> None:
    files = sorted(map(str, dist.iterdir()))
    assert [Path(f).name.split("-")[0] for f in files] == ["reglet", "reglet"]
    found = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
    names = zipfile.ZipFile(next(dist.glob("*.whl"))).namelist()
    assert {"reglet/py.typed", "reglet/losses/visreg.py", "reglet/report/healthy.json"} <= set(names)
    assert not any(name.startswith(("tests/", "docs/")) for name in names)


def test_links_of_the_description_work_outside_of_the_repository(dist: Path) -> None:
    wheel = zipfile.ZipFile(next(dist.glob("*.whl")))
    metadata = Parser().parsestr(wheel.read(next(n for n in wheel.namelist() if n.endswith("METADATA"))).decode())
    text = metadata.get_payload()
    assert isinstance(text, str)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert metadata["Version"] == reglet.__version__ == PROJECT["version"]


def test_files_that_readme_links_to_are_there() -> None:
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_address_stands_in_one_place() -> None:
    source = PROJECT["urls"]["Source"]
    for name, url in PROJECT["urls"].items():
        assert url.startswith((source, "https://" + "{}.github.io/{}".format(*source.split("/")[3:]))), name
    found = re.findall(
        r"https://(?:raw\.githubusercontent|github)\.com/([\w-]+/[\w-]+)", (ROOT / "pyproject.toml").read_text()
    )
    assert set(found) == {source.removeprefix("https://github.com/")}


def test_classifiers_name_the_versions_that_are_allowed() -> None:
    least = int(PROJECT["requires-python"].removeprefix(">=3."))
    named = [int(c.rsplit(".", 1)[1]) for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert named == list(range(least, least + len(named)))
