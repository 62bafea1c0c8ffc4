"""The documents are those of the summaries; what a person types into them is found."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest
from recipes.choices import CHOICES, choices
from recipes.pages import (
    BUDGET,
    answers,
    beyond,
    figure,
    in_brief,
    page,
    pages,
    summaries,
    tables_and_figures,
)
from recipes.recipe import REPO, Recipe, options, run

from reglet.runs import Claim, Gate, Interval, Line, Score, summarise


def test_the_documents_are_up_to_date() -> None:
    for path, text in pages(summaries(), tables_and_figures()).items():
        assert (REPO / path).read_text(encoding="utf-8") == text, f"{path}: run python -m recipes.pages"


@pytest.fixture
def summary() -> dict:
    def line(claim: str, low: float, high: float, **more: object) -> Line:
        evidence = Claim(Interval((low + high) / 2, low, high, 9), **more)  # type: ignore[arg-type]
        return Line(claim, "A <paper>", "table 1", "accuracy", evidence, Score("base", 50.0), Score("raw", 40.0))

    lines = [
        line("one", 1.0, 3.0, printed=2.0),
        line("two", -0.5, 0.5, printed=2.0),
        line("three", -50.0, 50.0, printed=2.0),
        line("four", -0.2, 0.2, margin=1.0),
        line("five", -3.0, -1.0, sign=-1),
        line("six", 1.0, 3.0, printed=2.0, gates=(Gate("above raw", 30.0, 40.0),)),
    ]
    facts = {"command": "python -m x", "commit": "abc", "date": "2026-11-18", "minutes": 3.0}
    return summarise("x", lines, **facts, share=0.01)  # type: ignore[arg-type]


def test_three_lines(summary: dict) -> None:
    holds, not_quite, still_open = in_brief([summary]).splitlines()
    assert holds.startswith("- **Holds** (3 of 6): such as A <paper>: ")
    assert holds.count("printed") == 1
    assert "two" in not_quite
    assert still_open == "- **Open** (2 of 6): 1 underpowered, 1 cannot show."


def test_a_line_for_every_claim(summary: dict) -> None:
    entries = [
        {"paper": "B", "label": "table 9", "what": "much", "why": "a thousand GPUs"},
        {"paper": "A <paper>", "label": "table 1", "what": "more", "why": "", "left": "the sea"},
    ]
    text = page([summary], entries)
    assert "6 claims: 3 holds, 0 smaller, 1 excluded, 1 underpowered, 1 cannot show." in text
    assert "| three (accuracy) | +2 | +0.0 (-50.0 to +50.0) | 9 | base 50 | raw 40 |  | underpowered" in text
    assert "cannot show (above raw: 30, not at least 40)" in text
    assert "1 % of the paper's images seen" in text
    assert "| B | table 9 | much | a thousand GPUs |" in text
    ours = "[x](#x): 3 holds, 1 excluded, 1 underpowered, 1 cannot show; left out: the sea"
    assert f"| A <paper> | table 1 | more | {ours} |" in text


@pytest.mark.parametrize(
    ("word", "needed", "minutes", "expected"),
    [
        ("underpowered", None, None, True),  # more than 1,000 seeds, whatever they cost
        ("underpowered", 100, BUDGET / 100, False),
        ("underpowered", 101, BUDGET / 100, True),
        ("underpowered", 900, None, False),  # nobody knows what they cost
        ("cannot show", None, 9.0, False),
        ("holds", None, 9.0, False),
    ],
)
def test_what_is_beyond_two_cores(word: str, needed: int | None, minutes: float | None, expected: bool) -> None:
    assert beyond({"verdict": word, "seeds_needed": needed, "minutes": minutes}) is expected


def test_the_figure_has_the_paper_at_one_and_ends_at_its_axis(summary: dict) -> None:
    text = figure([summary])
    assert text.count("<circle") == 6
    assert "A &lt;paper&gt;: one" in text
    dots = [float(part.split('"')[0]) for part in text.split('<circle cx="')[1:]]
    printed, zero = dots[0], dots[1]
    assert dots[4] == printed, "less, as claimed, is on the paper's side"
    assert dots[2] == dots[3] == zero
    assert 'x1="470.0" x2="810.0"' in text


@pytest.mark.parametrize("found", summaries(), ids=lambda found: found["recipe"])
def test_every_summary_is_that_of_the_committed_runs(found: dict, tmp_path: Path) -> None:
    """The command on a line gives the line, without a run of its own."""
    recipe = importlib.import_module(f"recipes.{found['recipe']}").RECIPE
    words = [*found["command"].split()[3:], f"out={tmp_path}", "compute=false"]
    try:
        asked = options(recipe, words)
        made = run(recipe, asked)
    except SystemExit as missing:
        pytest.skip(str(missing))
    ours, theirs = flat(made), flat(found)
    assert ours.keys() == theirs.keys()
    for at, value in theirs.items():
        # The ledger has seven digits of a score, of which differences of scores near 100 keep four behind the point.
        near = pytest.approx(value, rel=1e-4, abs=2e-4) if isinstance(value, float) else value
        assert ours[at] == near, at


@pytest.mark.parametrize("found", summaries(), ids=lambda found: found["recipe"])
def test_the_command_on_a_line_asks_for_the_seeds_that_were_run(found: dict) -> None:
    recipe = importlib.import_module(f"recipes.{found['recipe']}").RECIPE
    seeds = options(recipe, found["command"].split()[3:]).seeds
    limits = {**recipe.fewer, **dict.fromkeys(recipe.once, 1)}
    by_claim = {p.claim: p for p in recipe.printed}
    for claim in found["claims"]:
        p = by_claim[claim["claim"]]
        of_folds = max(limits.get(fold, seeds) for fold in p.folds or recipe.folds)
        asked = min(seeds, of_folds, *(limits.get(arm, seeds) for arm in (p.arm, p.versus)))
        assert claim["ours"]["n"] == asked, claim["claim"]


def flat(value: object, at: str = "") -> dict[str, object]:
    """The leaves of a nest of dicts and lists, by their paths."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        return {at: value}
    return {path: leaf for key, part in inner for path, leaf in flat(part, f"{at}.{key}").items()}


def test_every_table_and_figure_has_a_line() -> None:
    """A claim answers it, or there is a reason, and never both.  Questions of our own are in no paper."""
    claims = [claim for found in summaries() for claim in found["claims"]]
    claims += [{"paper": p.paper or recipe.paper, "where": p.where} for recipe in all_recipes() for p in recipe.printed]
    entries = tables_and_figures()
    assert len({(e["paper"], e["label"]) for e in entries}) == len(entries)
    for entry in entries:
        assert bool(answers(entry, claims)) != bool(entry["why"]), entry
    papers = {entry["paper"] for entry in entries}
    for claim in (c for c in claims if c["paper"] in papers):
        known = [e for e in entries if answers(e, [claim])]
        assert known or claim["where"] == "no need of large batches", f"{claim['where']} is in no paper's list"


def all_recipes() -> list[Recipe]:
    found = sorted(path.stem for path in (REPO / "recipes").glob("*.py") if "RECIPE = " in path.read_text())
    return [importlib.import_module(f"recipes.{name}").RECIPE for name in found]


def test_nothing_is_recommended_that_is_not_shown(summary: dict) -> None:
    choice = replace(CHOICES[0], recipe="x", tried="this")
    rows = {word: choices([summary], [replace(choice, claim=f"^{word}$")]) for word in ("one", "two", "three", "six")}
    assert "| **this** | +2 (+1 to +3), 9 seeds |  | holds ([x](reproduction.md#x)) |" in rows["one"]
    for word in ("two", "three", "six"):
        assert "| nothing shown; tried: this |" in rows[word]
    assert "| not measured: this |  |  |  |" in choices([], [choice])
