"""The results of a recipe, as the file that tables, documents and figures are made from.

    {"recipe", "command", "commit", "date", "minutes",        how to repeat it
     "budget": {"share", "of"},                               of the paper's
     "claims": [{"claim", "paper", "where", "measure",        what is claimed, and where
                 "printed", "margin", "sign",                 the effect that was printed
                 "ours": {"mean", "low", "high", "n"},        the paired difference with its 95 % interval
                 "baseline": {"name", "score"}, "reference",  what it is a difference from, and the simplest alternative
                 "gates": [{"name", "value", "threshold", "rule", "passed"}],
                 "dose": {"share", "penalty"},                the regularizer's, at the start, halfway and at the end
                 "cost",                                      CPU time over that of the baseline
                 "minutes",                                   CPU minutes of one seed of both arms
                 "verdict", "why", "seeds_needed"}]}

Claims of one file on one table of a paper (`where`) are corrected together.  A verdict that does not follow from the
rule is refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from reglet.engine.run_folder import write_json
from reglet.runs.interval import Interval
from reglet.runs.run import Json
from reglet.runs.verdict import Claim, Gate, judge_tables

Number = int | float
SUMMARY: dict[str, Any] = {
    "recipe": str,
    "command": str,
    "commit": str,
    "date": str,
    "minutes": Number,
    "budget": {"share": Number | None, "of": str},
    "claims": list,
}
CLAIM: dict[str, Any] = {
    "claim": str,
    "paper": str,
    "where": str,
    "measure": str,
    "printed": Number | None,
    "margin": Number | None,
    "sign": int,
    "ours": {"mean": Number, "low": Number, "high": Number, "n": int},
    "baseline": {"name": str, "score": Number},
    "reference": dict | None,
    "gates": list,
    "dose": dict | None,
    "cost": Number | None,
    "minutes": Number | None,
    "verdict": str,
    "why": str,
    "seeds_needed": int | None,
}
GATE: dict[str, Any] = {"name": str, "value": Number, "threshold": Number, "rule": str, "passed": bool}
SCORE: dict[str, Any] = {"name": str, "score": Number}
DOSE: dict[str, Any] = {"share": list, "penalty": list}


@dataclass(frozen=True)
class Score:
    """An arm's name and its score.

    >>> Score("raw pixels", 38.2).score
    38.2
    """

    name: str
    score: float


@dataclass(frozen=True)
class Dose:
    """How much of a regularizer an arm had, over time: its share of the gradient, and its own value.

    >>> Dose(share=[0.1, 0.05, 0.01], penalty=[2.0, 1.0, 0.5]).share[-1]
    0.01
    """

    share: list[float]
    penalty: list[float]


@dataclass(frozen=True)
class Line:
    """A claim and its evidence, before the verdict.  reference: the simplest alternative, such as raw pixels.

    >>> from reglet.runs import interval
    >>> claim = Claim(interval([1.9, 2.1, 2.0, 2.2, 1.8]), printed=2.0)
    >>> Line("SMI above Barlow Twins", "SMI", "table 1", "knn", claim, Score("Barlow Twins", 60.0)).baseline.score
    60.0
    """

    claim: str
    paper: str
    where: str
    measure: str
    evidence: Claim
    baseline: Score
    reference: Score | None = None
    dose: Dose | None = None
    cost: float | None = None
    minutes: float | None = None


def summarise(
    recipe: str,
    lines: Sequence[Line],
    *,
    command: str,
    commit: str,
    date: str,
    minutes: float,
    share: float | None,
    of: str = "images seen",
) -> Json:
    """The summary with its verdicts.  share: of the paper's budget, counted in `of`; None if unknown.

    >>> from reglet.runs import interval
    >>> claim = Claim(interval([1.9, 2.1, 2.0, 2.2, 1.8]), printed=2.0)
    >>> line = Line("SMI above Barlow Twins", "SMI", "table 1", "knn", claim, Score("Barlow Twins", 60.0))
    >>> how = {"command": "python -m mine", "commit": "abc", "date": "2026-11-18", "minutes": 5.0, "share": 0.01}
    >>> summarise("mine", [line], **how)["claims"][0]["verdict"]
    'holds'
    """
    verdicts = judge_tables([line.evidence for line in lines], [line.where for line in lines])
    claims = []
    for line, verdict in zip(lines, verdicts, strict=True):
        e = line.evidence
        claims.append(
            {
                "claim": line.claim,
                "paper": line.paper,
                "where": line.where,
                "measure": line.measure,
                "printed": e.printed,
                "margin": e.margin,
                "sign": e.sign,
                "ours": asdict(e.ours),
                "baseline": asdict(line.baseline),
                "reference": None if line.reference is None else asdict(line.reference),
                "gates": [{**asdict(gate), "passed": gate.passed} for gate in e.gates],
                "dose": None if line.dose is None else asdict(line.dose),
                "cost": line.cost,
                "minutes": line.minutes,
                "verdict": verdict.word,
                "why": verdict.why,
                "seeds_needed": verdict.seeds_needed,
            }
        )
    facts = {"recipe": recipe, "command": command, "commit": commit, "date": date, "minutes": minutes}
    return check({**facts, "budget": {"share": share, "of": of}, "claims": claims})


def write_summary(path: Path, summary: Json) -> None:
    """Writes the whole file or nothing.

    >>> from tempfile import TemporaryDirectory
    >>> how = {"command": "python -m mine", "commit": "abc", "date": "2026-11-18", "minutes": 5.0, "share": 0.01}
    >>> with TemporaryDirectory() as place:
    ...     write_summary(Path(place, "mine.json"), summarise("mine", [], **how))
    ...     read_summary(Path(place, "mine.json"))["recipe"]
    'mine'
    """
    write_json(path, check(summary))


def read_summary(path: Path) -> Json:
    """Reads what `write_summary` wrote, and checks its fields and verdicts.

    >>> from tempfile import TemporaryDirectory
    >>> how = {"command": "python -m mine", "commit": "abc", "date": "2026-11-18", "minutes": 5.0, "share": 0.01}
    >>> with TemporaryDirectory() as place:
    ...     write_summary(Path(place, "mine.json"), summarise("mine", [], **how))
    ...     read_summary(Path(place, "mine.json"))["minutes"]
    5.0
    """
    return check(json.loads(path.read_text()), where=path.name)


def check(summary: Json, *, where: str = "summary") -> Json:
    """The summary.  An error unless it has every key with its type, and the verdicts that follow from the rule."""
    _require(summary, SUMMARY, where)
    for i, claim in enumerate(summary["claims"]):
        at = f"{where}.claims[{i}]"
        _require(claim, CLAIM, at)
        for j, gate in enumerate(claim["gates"]):
            _require(gate, GATE, f"{at}.gates[{j}]")
            if gate["passed"] != _gate(gate).passed:
                raise ValueError(f"{at}: gate {gate['name']!r} says passed = {gate['passed']}, its numbers do not")
        if claim["reference"] is not None:
            _require(claim["reference"], SCORE, f"{at}.reference")
        if claim["dose"] is not None:
            _require(claim["dose"], DOSE, f"{at}.dose")
    claims = summary["claims"]
    verdicts = judge_tables([evidence(claim) for claim in claims], [claim["where"] for claim in claims])
    for claim, verdict in zip(claims, verdicts, strict=True):
        said = (claim["verdict"], claim["why"], claim["seeds_needed"])
        if said != (verdict.word, verdict.why, verdict.seeds_needed):
            raise ValueError(f"{where}: {claim['claim']!r} says {said}, the rule {verdict}")
    return summary


def evidence(claim: Json) -> Claim:
    """The evidence of a claim in a summary."""
    sign: Literal[1, -1] = 1 if claim["sign"] > 0 else -1
    gates = tuple(_gate(gate) for gate in claim["gates"])
    printed, margin = (None if claim[key] is None else float(claim[key]) for key in ("printed", "margin"))
    middle, low, high = (float(claim["ours"][key]) for key in ("mean", "low", "high"))
    return Claim(Interval(middle, low, high, claim["ours"]["n"]), printed, margin, sign, gates)


def _gate(gate: Json) -> Gate:
    return Gate(gate["name"], float(gate["value"]), float(gate["threshold"]), gate["rule"])


def _require(found: Any, schema: Mapping[str, Any], where: str) -> None:
    if not isinstance(found, dict) or found.keys() != schema.keys():
        got = sorted(found) if isinstance(found, dict) else repr(found)
        raise ValueError(f"{where} has the keys {sorted(schema)}; got {got}")
    for key, kind in schema.items():
        if isinstance(kind, dict):
            _require(found[key], kind, f"{where}.{key}")
        elif not isinstance(found[key], kind):
            raise ValueError(f"{where}.{key} is {kind}; got {found[key]!r}")
