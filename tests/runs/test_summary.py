import copy
from pathlib import Path
from typing import Any

import pytest

from reglet.runs import Claim, Gate, Interval, Line, Score, read_summary, summarise, write_summary
from reglet.runs.summary import check

LINES = [
    Line(
        "SMI above Barlow Twins",
        "SMI",
        "table 1",
        "linear probe, points",
        Claim(Interval(2.1, 1.1, 3.1, 8), printed=0.74, gates=(Gate("above raw pixels", 47.6, 38.2),)),
        Score("Barlow Twins", 47.6),
        Score("raw pixels", 38.2),
    ),
    Line(
        "level",
        "VISReg",
        "table 2",
        "kNN, points",
        Claim(Interval(0.1, -3.0, 3.2, 8), margin=1.0),
        Score("SIGReg", 48.0),
    ),
]


def made() -> dict[str, Any]:
    facts: dict[str, Any] = {"command": "python -m recipes.x", "commit": "abc", "date": "2026-11-18", "minutes": 3.0}
    return summarise("x", LINES, **facts, share=1e-3)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    summary = made()
    assert [c["verdict"] for c in summary["claims"]] == ["holds", "underpowered"]
    write_summary(tmp_path / "x.json", summary)
    assert read_summary(tmp_path / "x.json") == summary


def change(*path: Any, to: Any) -> dict[str, Any]:
    summary = copy.deepcopy(made())
    at: Any = summary
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return summary


@pytest.mark.parametrize(
    ("summary", "says"),
    [
        (change("minutes", to="long"), r"minutes is .*got 'long'"),
        (change("more", to=1), "has the keys"),
        (change("claims", 0, "ours", "n", to=2.5), r"claims\[0\].ours.n"),
        (change("claims", 1, "verdict", to="holds"), "'level' says .*holds.*the rule"),
        (change("claims", 0, "ours", "low", to=-4.0), "the rule"),
        (change("claims", 0, "gates", 0, "passed", to=False), "its numbers do not"),
    ],
)
def test_what_is_not_by_the_rule_is_refused(summary: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check(summary)
