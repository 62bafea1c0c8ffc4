"""Every name of the reference has an example, and every example runs.

`pytest --doctest-modules` runs those of plain functions and of classes.  It sees neither what a decorator has wrapped
nor names that are data, so their examples run here.
"""

import ast
import doctest
import re
import runpy
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
EXPAND = runpy.run_path(str(ROOT / "docs" / "reference" / "expand.py"))
PAGES = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
ROOMS = re.findall(r"^::: (reglet[\w.]*)$", PAGES, flags=re.MULTILINE)


class Named(NamedTuple):
    module: str
    name: str
    doc: str
    collected: bool  # by --doctest-modules


def find(module: str, name: str) -> Named:
    """Where `name` is defined: the room's table of contents says where it comes from."""
    path = EXPAND["SOURCE"].joinpath(*module.split("."))
    body = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")).body
    imports = [node for node in ast.walk(ast.Module(body, [])) if isinstance(node, ast.ImportFrom)]
    for node in imports if path.is_dir() else ():
        if name in [alias.asname or alias.name for alias in node.names]:
            return find(str(node.module), name)
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            plain = isinstance(node, ast.ClassDef) or not node.decorator_list
            return Named(module, name, ast.get_docstring(node) or "", plain)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            said = after.value if isinstance(after, ast.Expr) else None
            return Named(module, name, str(said.value) if isinstance(said, ast.Constant) else "", False)
    raise LookupError(f"{module} has no {name}")


PUBLIC = sorted({find(room, name) for room in ROOMS for name in EXPAND["names"](room)})


def test_the_reference_has_the_rooms() -> None:
    assert len(PUBLIC) > 300
    assert {"reglet", "reglet.losses", "reglet.networks.audio", "reglet.runs"} <= set(ROOMS)


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: f"{public.module}.{public.name}")
def test_has_an_example(public: Named) -> None:
    assert ">>> " in public.doc, f"{public.name} has no example in its docstring: write one of two to five lines"


@pytest.mark.parametrize(
    "public", [public for public in PUBLIC if not public.collected], ids=lambda public: f"{public.module}.{public.name}"
)
def test_example_runs(public: Named) -> None:
    values = dict(vars(import_module(public.module)))
    test = doctest.DocTestParser().get_doctest(public.doc, values, public.name, public.module, 0)
    said: list[str] = []
    failed, tried = doctest.DocTestRunner().run(test, out=said.append)
    assert tried
    assert not failed, "".join(said)
