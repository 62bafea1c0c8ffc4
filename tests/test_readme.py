"""Every ```python block of the README and the docs runs, in the order of the file, as one program."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))) if path.is_file()]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[int, str]]:
    """(line of the first statement, code)"""
    return [(page.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in BLOCK.finditer(page)]


def execute(path: Path) -> int:
    found = blocks(path.read_text(encoding="utf-8"))
    namespace: dict[str, object] = {"__name__": "__page__"}
    for line, code in found:
        # Blank lines in front, so that a traceback shows the page's own line.
        exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)
    return len(found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what a page writes does not land in the repository
    execute(path)


def test_the_readme_shows_code() -> None:
    assert blocks((ROOT / "README.md").read_text(encoding="utf-8"))


def test_blocks_share_a_namespace_and_failures_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# a\n```python\nx = 2\n```\ntext\n```bash\nfalse\n```\n```python\nassert x == 2\n```\n")
    assert execute(page) == 2
    page.write_text(page.read_text() + "```python\nassert x == 3, 'wrong'\n```\n")
    with pytest.raises(AssertionError, match="wrong") as failure:
        execute(page)
    assert failure.traceback[-1].lineno + 1 == 13  # pytest counts from 0
