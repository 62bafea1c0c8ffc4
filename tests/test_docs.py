"""The site: it builds, its links lead somewhere, its commands and its blocks for other libraries run.

```python blocks are run by test_readme.py.  ```py blocks begin with `# needs LIBRARY` and run where that is installed.
"""

import importlib
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from reglet.cli import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
BLOCK = re.compile(r"^```(python|py)\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
COMMANDS = re.compile(r"^```bash\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


def cases() -> list[tuple[Path, int, str]]:
    """Blocks for other libraries: (page, which of its blocks, what it needs)."""
    found = []
    for page in PAGES:
        for i, (kind, code) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            if kind == "py":
                needs = re.match(r"# needs (.+)\n", code)
                assert needs, f"{page.name}: a ```py block begins with `# needs LIBRARY`"
                found.append((page, i, needs.group(1)))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the other libraries, about themselves
@pytest.mark.parametrize(("page", "number", "needs"), cases(), ids=lambda case: str(getattr(case, "stem", case)))
def test_blocks_for_other_libraries(
    page: Path,
    number: int,
    needs: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if find_spec("torchvision"):  # which they import if it is there, and which does not fit every torch
        request.getfixturevalue("torchvision")
    for library in needs.split():
        pytest.importorskip(library, reason=f"{library} is not installed: the block of {page.name} was not run")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    namespace: dict[str, object] = {"__name__": "__page__"}
    for i, (kind, code) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        if i == number or (kind == "python" and i < number):
            exec(compile(code, f"{page.name}, block {i}", "exec"), namespace)


@pytest.mark.slow
def test_the_commands_of_the_quickstart_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = []
    for page in ("quickstart.md", "collapse.md"):
        for block in COMMANDS.findall((DOCS / page).read_text(encoding="utf-8")):
            for line in block.splitlines():
                program, *words = shlex.split(line, comments=True)
                assert program == "reglet"
                code = main(words)
                assert code == 0 or (words[0] == "doctor" and code in (1, 4)), capsys.readouterr().err
                ran.append(words[0])
    assert ran == ["pretrain", "doctor", "eval", "report", "doctor"]
    assert (tmp_path / "runs/a/report.html").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    importlib.import_module("material")
    config = ROOT / "mkdocs.yml"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(config), "-d", str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    for page in re.findall(r": (\S+)\.md$", config.read_text(), re.MULTILINE):
        built = tmp_path / "site" / (f"{page}.html" if page.endswith("index") else f"{page}/index.html")
        assert "<h1" in built.read_text(encoding="utf-8"), page
