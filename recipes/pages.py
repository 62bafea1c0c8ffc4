"""README's lines on the papers, docs/reproduction.md and its figure, docs/choose.md's table; never typed.

Numbers and verdicts come from recipes/summaries, the tables and figures of the papers from recipes/papers.json.

python -m recipes.pages
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from recipes.choices import choices
from recipes.recipe import REPO, SUMMARIES
from reglet.runs import ClaimVerdict, read_summary
from reglet.runs.verdict import WORDS, in_words

Json = dict[str, Any]
PAPERS = REPO / "recipes/papers.json"  # every table and figure; where no claim of ours answers one, why not
BEGIN, END = "<!-- recipes.pages -->", "<!-- /recipes.pages -->"
README, CHOOSE = Path("README.md"), Path("docs/choose.md")
PAGE, FIGURE = Path("docs/reproduction.md"), Path("docs/reproduction.svg")
GROUPS = {
    "Holds": ("holds",),
    "Smaller than printed, or excluded": ("smaller", "excluded"),
    "Open": ("underpowered", "cannot show"),
}
ABOUT = """\
Each line is a claim of a paper, or a question of our own (paper: reglet). *Ours* is the paired difference over seeds
with its 95 % interval (Student's t). `python -m recipes.pages` writes this page from `recipes/summaries/`; do not edit.

| verdict | the interval |
|---|---|
| *holds* | excludes 0, and reaches the printed effect |
| *smaller* | excludes 0, and lies below the printed effect |
| *excluded* | lies below the printed effect and contains 0, or is on the other side of 0 |
| *underpowered* | contains both, or has fewer than five seeds; the line has the seeds that 80 % power needs |
| *cannot show* | does not count: a health gate failed, so no effect could have shown |

- `reglet.runs.verdict` has this rule. Claims on one table of a paper are corrected together (Holm).
- An *underpowered* claim is beyond two cores if its seeds would take more than {budget} CPU minutes, or exceed 1,000.
- *Dose* is the regularizer's share of the gradient at the start, halfway and at the end of training.
- The runs behind every line are in `recipes/runs/`, and a test makes the line again from them. A recipe's command
  continues from there."""
BUDGET = 240  # CPU minutes: two hours of two cores
LEFT, WIDTH, ROW, LEAST, MOST = 470, 340, 20, -3.0, 4.0  # of the figure: pixels, and multiples of the printed effect


def summaries(folder: Path = SUMMARIES) -> list[Json]:
    return [read_summary(path) for path in sorted(folder.glob("*.json"))]


def tables_and_figures() -> list[Json]:
    """Of the five papers: {"paper", "label", "what", "why"}.  Where claims answer it, why is empty, and "left" says
    which parts no claim answers, if there are any."""
    entries: list[Json] = json.loads(PAPERS.read_text(encoding="utf-8"))
    return entries


def pages(found: Sequence[Json], printed: Sequence[Json], repo: Path = REPO) -> dict[Path, str]:
    """What every generated file should hold."""
    readme, choose = ((repo / path).read_text(encoding="utf-8") for path in (README, CHOOSE))
    return {
        README: between(readme, in_brief(found)),
        CHOOSE: between(choose, choices(found)),
        PAGE: page(found, printed),
        FIGURE: figure(found),
    }


def between(text: str, generated: str) -> str:
    """The document, with what stands between the marks exchanged."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{generated}\n{END}{after}"


def answers(entry: Json, claims: Sequence[Json]) -> list[Json]:
    """The claims on a table or figure."""
    label = re.compile(rf"\b{re.escape(entry['label'])}\b")
    return [c for c in claims if c["paper"] == entry["paper"] and label.search(c["where"])]


def effect(claim: Json) -> str:
    """Ours, with its interval."""
    o = claim["ours"]
    half = (o["high"] - o["low"]) / 2
    digits = 1 if half >= 1 else 2 if half >= 0.1 else 3
    return f"{o['mean']:+.{digits}f} ({o['low']:+.{digits}f} to {o['high']:+.{digits}f})"


def printed(claim: Json) -> str:
    if claim["margin"] is not None:
        return f"level to {claim['margin']:g}"
    if claim["printed"] is not None:
        return f"{claim['printed']:+g}"
    return "more" if claim["sign"] > 0 else "less"


def verdict(claim: Json) -> str:
    said = in_words(ClaimVerdict(claim["verdict"], claim["why"], claim["seeds_needed"]))
    return f"{said}, beyond two cores" if beyond(claim) else said


def beyond(claim: Json) -> bool:
    """Would the seeds that the claim needs take longer than two cores have?"""
    if claim["verdict"] != "underpowered":
        return False
    needed = claim["seeds_needed"]
    return needed is None or (claim["minutes"] is not None and needed * claim["minutes"] > BUDGET)


def in_brief(found: Sequence[Json]) -> str:
    """Three lines: what holds, what does not, what is open.  The last claim of each by name; the page has them all."""
    claims = [claim for summary in found for claim in summary["claims"]]
    lines = []
    for name, words in GROUPS.items():
        mine = [claim for claim in claims if claim["verdict"] in words]
        if name == "Open":
            counts = (f"{sum(c['verdict'] == word for c in mine)} {word}" for word in words)
            said = ", ".join(counts)
        else:
            example = (f"{c['paper']}: {c['claim']}, {effect(c)}, printed {printed(c)}" for c in mine[-1:])
            said = "such as " + next(example) if mine else "none"
        lines.append(f"- **{name}** ({len(mine)} of {len(claims)}): {said}.")
    return "\n".join(lines)


def page(found: Sequence[Json], printed_in: Sequence[Json]) -> str:
    claims = [claim for summary in found for claim in summary["claims"]]
    counts = ", ".join(f"{sum(c['verdict'] == word for c in claims)} {word}" for word in WORDS)
    fit = [c for c in claims if not beyond(c)]
    unclear = sum(c["verdict"] in GROUPS["Open"] for c in fit)
    lines = [
        "# What the papers claim, and what two cores found",
        "",
        ABOUT.format(budget=BUDGET),
        "",
        f"{len(claims)} claims: {counts}. {len(fit)} fit two cores; of these {unclear} are underpowered "
        "or cannot show.",
        "",
        "![Every claim: our interval as a multiple of the printed effect](reproduction.svg)",
        "",
    ]
    for summary in found:
        share = summary["budget"]["share"]
        budget = "" if share is None else f", {100 * share:.2g} % of the paper's {summary['budget']['of']}"
        lines += [
            f"## {summary['recipe']}",
            "",
            f"`{summary['command']}`: {summary['minutes']:g} CPU minutes{budget}; "
            f"commit {summary['commit']}, {summary['date']}.",
            "",
            "| paper | claim | printed | ours | seeds | baseline | reference | dose | verdict |",
            "|" + "---|" * 9,
        ]
        for c in summary["claims"]:
            reference = "" if c["reference"] is None else f"{c['reference']['name']} {c['reference']['score']:.4g}"
            base = f"{c['baseline']['name']} {c['baseline']['score']:.4g}"
            head = [
                ", ".join(filter(None, (c["paper"], c["where"]))),
                f"{c['claim']} ({c['measure']})",
                printed(c),
                effect(c),
            ]
            dose = "" if c["dose"] is None else ", ".join(f"{share:.2g}" for share in c["dose"]["share"])
            cells = [*head, str(c["ours"]["n"]), base, reference, dose, verdict(c)]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["## Every table and figure of the papers", ""]
    lines += ["| paper | table or figure | what it shows | our line, or why there is none |", "|---|---|---|---|"]
    for e in printed_in:
        lines.append(f"| {e['paper']} | {e['label']} | {e['what']} | {e['why'] or answered(e, found)} |")
    return "\n".join([*lines, ""])


def answered(entry: Json, found: Sequence[Json]) -> str:
    """Which recipes answer it, and how."""
    parts = []
    for summary in found:
        words = Counter(claim["verdict"] for claim in answers(entry, summary["claims"]))
        if words:
            said = ", ".join(f"{count} {word}" for word, count in words.items())
            parts.append(f"[{summary['recipe']}](#{summary['recipe']}): {said}")
    return "; ".join([*(parts or ["not run"]), *([f"left out: {entry['left']}"] if "left" in entry else [])])


def figure(found: Sequence[Json]) -> str:
    """A forest plot: intervals in multiples of the printed effect (or of the margin), whose tick is at 1."""
    claims = [claim for summary in found for claim in summary["claims"]]
    height = ROW * (len(claims) + 3)
    marks = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 130} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="100%" height="{height}" fill="white"/>',
    ]
    for value, label in ((0.0, "0"), (1.0, "printed")):
        x = _x(value)
        dash = "" if value == 0 else ' stroke-dasharray="4 3"'
        marks.append(f'<line x1="{x}" x2="{x}" y1="{ROW}" y2="{height - ROW}" stroke="#888"{dash}/>')
        marks.append(f'<text x="{x}" y="{ROW - 6}" text-anchor="middle">{label}</text>')
    colours = {"holds": "#1a7f37", "smaller": "#9a6700", "excluded": "#cf222e"}
    for i, claim in enumerate(claims):
        y, colour = ROW * (i + 2), colours.get(claim["verdict"], "#777")
        unit = claim["printed"] or claim["margin"] or claim["sign"] * (abs(claim["ours"]["mean"]) or 1.0)
        low, middle, high = (claim["ours"][key] / unit for key in ("low", "mean", "high"))
        a, m, b = (_x(v) for v in (min(low, high), middle, max(low, high)))
        name = escape(f"{claim['paper']}: {claim['claim']}")
        marks += [
            f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{name}</text>',
            f'<line x1="{a}" x2="{b}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>',
            f'<circle cx="{m}" cy="{y}" r="3.5" fill="{colour}"/>',
            f'<text x="{LEFT + WIDTH + 12}" y="{y + 4}" fill="{colour}">{claim["verdict"]}</text>',
        ]
    return "\n".join([*marks, "</svg>", ""])


def _x(value: float) -> float:
    """Beyond the ends of the axis: at its end."""
    return round(LEFT + WIDTH * (min(max(value, LEAST), MOST) - LEAST) / (MOST - LEAST), 1)


def main() -> int:
    for path, text in pages(summaries(), tables_and_figures()).items():
        (REPO / path).write_text(text, encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
