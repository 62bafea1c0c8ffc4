"""mkdocs: `::: reglet.losses` on a page of the reference becomes a heading and an entry for every name of that room.

The names are those that the room's __init__.py imports; they are read, not run.
"""

import ast
import re
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"


def names(room: str) -> list[str]:
    """The public names of `room`: what its __init__.py imports from inside, or what its file defines."""
    path = SOURCE.joinpath(*room.split("."))
    package = path.is_dir()
    tree = ast.parse((path / "__init__.py" if package else path.with_suffix(".py")).read_text())
    found: list[str] = []
    for node in ast.walk(tree):
        if package and isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reglet"):
            found += [alias.asname or alias.name for alias in node.names]
        elif not package and isinstance(node, ast.FunctionDef | ast.ClassDef) and node in tree.body:
            found.append(node.name)
    return sorted({name for name in found if not name.startswith("_")}, key=lambda name: (name.islower(), name))


def on_page_markdown(markdown: str, **_: Any) -> str:
    def entries(match: re.Match[str]) -> str:
        room = match[1]
        return "\n\n".join(f"## {name}\n\n::: {room}.{name}" for name in names(room))

    return re.sub(r"^::: (reglet[\w.]*)$", entries, markdown, flags=re.MULTILINE)
