"""Does a claim hold?  Verdicts by rule, from the interval of our difference and the effect that the paper printed.

    holds          the interval excludes 0 and reaches the printed effect
    smaller        it excludes 0 and lies below the printed effect
    excluded       it lies below the printed effect and contains 0, or lies on the other side of 0
    underpowered   it contains both, or there are fewer than five seeds
    cannot show    a health gate failed, so no effect could have shown

A claim that two arms are level has a margin.  It holds if the interval lies within the margin, is excluded if the
interval lies outside, and is underpowered if the interval crosses the edge.  A claim without a figure has a direction.
It holds if the interval excludes 0 on that side, is excluded on the other side, and is underpowered if the interval
contains 0.

Several claims on one table of a paper are corrected together.  A claim tests two hypotheses: the effect is 0, and the
effect is the printed one.  At most one of the two is true, so at most m of the 2m hypotheses of m claims.  With that
count, Holm's procedure (Shaffer 1986) multiplies the j-th smallest p-value by min(m, 2m - j + 1).  The chance of any
wrong verdict in the table is then at most 5 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reglet.runs.interval import LEVEL, Interval, seeds_needed

Word = Literal["holds", "smaller", "excluded", "underpowered", "cannot show"]
WORDS: tuple[Word, ...] = ("holds", "smaller", "excluded", "underpowered", "cannot show")
SEEDS = 5  # the fewest for a verdict


@dataclass(frozen=True)
class Gate:
    """A condition without which no effect could show.  rule: how the value must compare with the threshold.

    >>> Gate("baseline above raw pixels", 34.6, 38.2).passed
    False
    """

    name: str
    value: float
    threshold: float
    rule: Literal["at least", "at most"] = "at least"

    @property
    def passed(self) -> bool:
        return self.value >= self.threshold if self.rule == "at least" else self.value <= self.threshold


@dataclass(frozen=True)
class Claim:
    """A paper's claim about a difference, and our measurement of it.

    printed: the paper's effect in our unit; None if it prints no figure.  margin: for a claim that two arms are level.
    sign: the direction of a claim without a figure.

    >>> from reglet.runs import interval
    >>> judge([Claim(interval([1.9, 2.1, 2.0, 2.2, 1.8]), printed=2.0)])[0].word
    'holds'
    """

    ours: Interval
    printed: float | None = None
    margin: float | None = None
    sign: Literal[1, -1] = 1
    gates: tuple[Gate, ...] = ()

    def __post_init__(self) -> None:
        if self.margin is not None and (self.margin <= 0 or self.printed is not None):
            raise ValueError(f"a claim of levelness has a positive margin and no printed effect, got {self}")
        if self.printed == 0:
            raise ValueError("a printed effect of 0 is a claim of levelness: give a margin instead")


@dataclass(frozen=True)
class ClaimVerdict:
    """why: the gates that failed.  seeds_needed: for 80 % power, if more seeds would help; None if over 1,000.

    adjusted: the corrected p-values of no effect and of the printed effect, or of the two edges of the margin.

    >>> from reglet.runs import interval
    >>> judge([Claim(interval([1.9, 2.1, 2.0]), printed=2.0)])[0].word  # three seeds are too few
    'underpowered'
    """

    word: Word
    why: str = ""
    seeds_needed: int | None = None
    adjusted: tuple[float, float] = (1.0, 1.0)


def judge(claims: Sequence[Claim]) -> list[ClaimVerdict]:
    """The verdicts of one table.

    >>> from reglet.runs import interval
    >>> ours = interval([0.9, 1.1, 1.0, 1.2, 0.8])
    >>> [verdict.word for verdict in judge([Claim(ours, printed=1.0), Claim(ours, printed=5.0), Claim(ours, sign=-1)])]
    ['holds', 'smaller', 'excluded']
    """
    able = [claim for claim in claims if _failed(claim) == "" and claim.ours.n >= SEEDS]
    corrected = iter(correct([_tests(claim) for claim in able]))
    verdicts = []
    for claim in claims:
        if why := _failed(claim):
            verdicts.append(ClaimVerdict("cannot show", why))
        elif claim.ours.n < SEEDS:
            verdicts.append(ClaimVerdict("underpowered", seeds_needed=_needed(claim, len(claims))))
        else:
            zero, printed = next(corrected)
            word = _word(claim, zero <= LEVEL, printed <= LEVEL)
            needed = _needed(claim, len(able)) if word == "underpowered" else None
            verdicts.append(ClaimVerdict(word, "", needed, (zero, printed)))
    return verdicts


def judge_tables(claims: Sequence[Claim], tables: Sequence[str]) -> list[ClaimVerdict]:
    """The verdicts of several tables, each corrected for its own claims.  tables: the table of each claim."""
    verdicts: dict[int, ClaimVerdict] = {}
    for name in dict.fromkeys(tables):
        mine = [i for i, table in enumerate(tables) if table == name]
        verdicts.update(zip(mine, judge([claims[i] for i in mine]), strict=True))
    return [verdicts[i] for i in range(len(claims))]


def correct(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Adjusted p-values of m pairs of hypotheses.  At most one of each pair is true.

    >>> correct([(0.01, 0.5)]), correct([(0.01, 1.0), (0.02, 1.0)])
    ([(0.01, 0.5)], [(0.02, 1.0), (0.04, 1.0)])
    """
    m = len(pairs)
    flat = [p for pair in pairs for p in pair]
    adjusted, largest = [0.0] * len(flat), 0.0
    for j, i in enumerate(sorted(range(len(flat)), key=flat.__getitem__), start=1):
        largest = max(largest, min(1.0, min(m, 2 * m - j + 1) * flat[i]))
        adjusted[i] = largest
    return list(zip(adjusted[::2], adjusted[1::2], strict=True))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of m hypotheses (Holm 1979): the j-th smallest is multiplied by m - j + 1.

    >>> holm([0.01, 0.04, 0.5])
    [0.03, 0.08, 0.5]
    """
    m = len(p_values)
    adjusted, largest = [0.0] * m, 0.0
    for j, i in enumerate(sorted(range(m), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (m - j) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _tests(claim: Claim) -> tuple[float, float]:
    """The p-values of no effect and of the printed effect; for a level claim, of the two edges of the margin."""
    if claim.margin is not None:
        return claim.ours.p(-claim.margin), claim.ours.p(claim.margin)
    return claim.ours.p(), 1.0 if claim.printed is None else claim.ours.p(claim.printed)


def _word(claim: Claim, zero: bool, printed: bool) -> Word:
    """zero, printed: whether that hypothesis is rejected."""
    m = claim.ours.mean
    if claim.margin is not None:
        if abs(m) < claim.margin:
            return "holds" if zero and printed else "underpowered"
        return "excluded" if (printed if m > 0 else zero) else "underpowered"
    if claim.printed is None:
        return "underpowered" if not zero else "holds" if m * claim.sign > 0 else "excluded"
    with_paper = m * claim.printed > 0
    below = printed and (abs(m) < abs(claim.printed) or not with_paper)
    if zero:
        return "excluded" if not with_paper else "smaller" if below else "holds"
    return "excluded" if below else "underpowered"


def _failed(claim: Claim) -> str:
    return "; ".join(
        f"{gate.name}: {gate.value:.4g}, not {gate.rule} {gate.threshold:.4g}"
        for gate in claim.gates
        if not gate.passed
    )


def _needed(claim: Claim, claims: int) -> int | None:
    """The seeds needed at the level of the first of `claims` tests.

    They tell the printed effect from 0.  Without one, they tell the effect seen from 0, or from the nearer edge of the
    margin.
    """
    seen, effect = claim.ours.mean, claim.printed
    if effect is None:
        effect = seen if claim.margin is None else claim.margin - abs(seen)
    found = seeds_needed(claim.ours, effect, level=LEVEL / max(claims, 1))
    return None if found is None else max(found, SEEDS)


def in_words(verdict: ClaimVerdict) -> str:
    """
    >>> in_words(ClaimVerdict("underpowered", seeds_needed=24))
    'underpowered: 24 seeds needed'
    """
    if verdict.word == "cannot show":
        return f"cannot show ({verdict.why})"
    if verdict.word == "underpowered":
        many = "more than 1,000" if verdict.seeds_needed is None else f"{verdict.seeds_needed:,}"
        return f"underpowered: {many} seeds needed"
    return verdict.word
