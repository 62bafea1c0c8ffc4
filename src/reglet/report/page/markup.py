"""Small pieces of HTML.  What comes from a run's names goes through `esc`, always."""

import html
import json
from collections.abc import Sequence
from typing import Any

from reglet.report.gather import Missing


def esc(value: object) -> str:
    return html.escape(str(value), quote=True)


def data_json(value: object) -> str:
    """JSON that can stand inside <script>: no tag can begin in it.

    >>> data_json({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for raw in "<>&\u2028\u2029":
        text = text.replace(raw, f"\\u{ord(raw):04x}")
    return text


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, label: str) -> str:
    """Cells are HTML.  The first column names the row; a wide table scrolls in itself, by keyboard too."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{esc(label)}">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def missing(what: str, why: Missing | str) -> str:
    reason = why.why if isinstance(why, Missing) else why
    return f'<p class="missing"><b>{esc(what)}</b>: not shown. {esc(reason)}</p>'


def note(text: str) -> str:
    """text: HTML."""
    return f'<p class="note">{text}</p>'


def section(key: str, title: str, body: str) -> str:
    return f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{esc(title)}</h2>{body}</section>'


def grid(*cells: str) -> str:
    return f'<div class="grid">{"".join(cells)}</div>'


def option(value: str, shown: str) -> str:
    return f'<option value="{esc(value)}">{esc(shown)}</option>'


class Figures:
    """Figures of the page by number, and the places where they are drawn."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def place(self, figure: dict[str, Any] | None, *, title: str, says: str = "") -> str:
        """title: what a screen reader says, and the reader sees.  Nothing where there is no figure."""
        if figure is None:
            return ""
        key = f"f{len(self.kept)}"
        self.kept[key] = figure
        caption = f"<figcaption><b>{esc(title)}</b>{' ' if says else ''}{esc(says)}</figcaption>"
        height = figure["layout"].get("height", 320)
        return (
            f'<figure>{caption}<div class="chart" data-figure="{key}" style="height:{height}px" tabindex="0" '
            f'role="group" aria-label="{esc(title)}; arrow keys go from point to point"></div></figure>'
        )
