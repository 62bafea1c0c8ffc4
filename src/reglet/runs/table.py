"""Finished runs as a table: the mean of each arm, and its paired difference from another arm.

The unit is a seed.  If a seed has several folds, its score is their mean; a seed that lacks a fold is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from reglet.runs.interval import Interval, difference, interval
from reglet.runs.run import Finished


@dataclass(frozen=True)
class Cell:
    """versus: the arm that `difference` is from; "" for none.

    >>> from reglet.runs import interval
    >>> Cell("VISReg", "knn", interval([0.5, 0.6, 0.7])).mean.n
    3
    """

    arm: str
    measure: str
    mean: Interval
    versus: str = ""
    difference: Interval | None = None


def by_seed(
    results: Sequence[Finished], arm: str, measure: str, *, folds: Sequence[str] | None = None
) -> dict[int, float]:
    """The mean over folds for every seed.  folds: by default all folds of any run.

    >>> from reglet.runs import Run
    >>> results = [Finished(Run("SMI", seed), {"knn": 0.5 + seed / 10}, {}) for seed in (0, 1)]
    >>> by_seed(results, "SMI", "knn")
    {0: 0.5, 1: 0.6}
    """
    wanted = set(folds) if folds is not None else {r.run.fold for r in results}
    found: dict[int, dict[str, float]] = {}
    for r in results:
        if r.run.arm == arm and r.run.fold in wanted and measure in r.scores:
            found.setdefault(r.run.seed, {})[r.run.fold] = float(r.scores[measure])
    return {seed: mean(scores.values()) for seed, scores in sorted(found.items()) if scores.keys() == wanted}


def compare(
    results: Sequence[Finished], arm: str, versus: str, measure: str, *, folds: Sequence[str] | None = None
) -> Interval:
    """The interval of arm minus versus, paired by seed and fold.

    >>> from reglet.runs import Run
    >>> arms = {"a": 0.5, "b": 0.75}
    >>> results = [Finished(Run(arm, seed), {"knn": knn}, {}) for seed in (0, 1) for arm, knn in arms.items()]
    >>> compare(results, "b", "a", "knn").mean
    0.25
    """
    return difference(*(by_seed(results, name, measure, folds=folds) for name in (arm, versus)))


def table(
    results: Sequence[Finished],
    measures: Sequence[str],
    *,
    base: str | Mapping[str, str] = "",
    folds: Sequence[str] | None = None,
) -> list[list[Cell]]:
    """A row for each arm, a cell for each measure.  base: the arm that all are compared with, or arm -> its base.

    >>> from reglet.runs import Run
    >>> arms = {"a": 0.5, "b": 0.75}
    >>> results = [Finished(Run(arm, seed), {"knn": knn}, {}) for seed in (0, 1) for arm, knn in arms.items()]
    >>> [[cell.mean.mean for cell in row] for row in table(results, ["knn"], base="a")]
    [[0.5], [0.75]]
    """
    rows = []
    for arm in dict.fromkeys(r.run.arm for r in results):
        versus = base if isinstance(base, str) else base.get(arm, "")
        cells = []
        for measure in measures:
            mine = by_seed(results, arm, measure, folds=folds)
            if not mine:
                continue
            other = by_seed(results, versus, measure, folds=folds) if versus and versus != arm else {}
            d = difference(mine, other) if mine.keys() & other.keys() else None
            cells.append(Cell(arm, measure, interval(list(mine.values())), versus if d else "", d))
        if cells:
            rows.append(cells)
    return rows


def markdown(rows: Sequence[Sequence[Cell]], *, digits: int = 2) -> str:
    """Mean ± half of its 95 % interval.  In brackets: the difference from the arm in the second column.

    >>> from reglet.runs import Run
    >>> results = [Finished(Run("SMI", seed), {"knn": 0.5 + seed / 10}, {}) for seed in (0, 1)]
    >>> print(markdown(table(results, ["knn"])))
    | arm | versus | knn | seeds |
    |---|---|---|---|
    | SMI |  | 0.55 ± 0.64 | 2 |
    """
    names = list(dict.fromkeys(cell.measure for row in rows for cell in row))
    lines = ["| arm | versus | " + " | ".join(names) + " | seeds |", "|" + "---|" * (3 + len(names))]
    for row in rows:
        shown = {cell.measure: in_words(cell, digits=digits) for cell in row}
        versus = next((cell.versus for cell in row if cell.versus), "")
        cells = [row[0].arm, versus, *(shown.get(name, "") for name in names), str(row[0].mean.n)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def in_words(cell: Cell, *, digits: int = 2) -> str:
    text = plus_minus(cell.mean, digits=digits)
    return text if cell.difference is None else f"{text} ({plus_minus(cell.difference, digits=digits, sign=True)})"


def plus_minus(seen: Interval, *, digits: int = 2, sign: bool = False) -> str:
    """
    >>> plus_minus(Interval(1.0, 0.5, 1.5, 3), sign=True)
    '+1.00 ± 0.50'
    """
    middle = f"{seen.mean:+.{digits}f}" if sign else f"{seen.mean:.{digits}f}"
    return middle if seen.n < 2 else f"{middle} ± {seen.half:.{digits}f}"
