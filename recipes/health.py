"""Health gates: conditions without which no effect could have shown.  A claim whose gates fail has no verdict.

Every claim has these, unless it says that the health of the network does not matter to it:

    the baseline scores above the simplest alternatives    raw pixels; where weights are pretrained, a frozen probe too
    twice its steps move it by less than a point
    the learning rates chosen lie inside their grids       of the arm and of what it is compared with
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reglet.runs import Finished, Gate, by_seed, compare, interval

POINT = 1.0
RATE = "lr"
Tries = Mapping[str, Sequence[Mapping[str, Any]]]


def twice(arm: str) -> str:
    """The arm that is trained for twice as long."""
    return f"{arm}, twice the steps"


def above(results: Sequence[Finished], arm: str, other: str, measure: str) -> Gate:
    """Does the baseline learn more than the simplest alternative?"""
    return Gate(f"{arm} above {other}", score(results, arm, measure), score(results, other, measure))


def settled(results: Sequence[Finished], arm: str, measure: str) -> Gate:
    """Does the baseline move by less than a point with twice the steps?  Over the seeds that have both."""
    if not by_seed(results, arm, measure).keys() & by_seed(results, twice(arm), measure).keys():
        return Gate(f"seeds of {arm} with twice the steps", 0.0, 1.0)
    moved = abs(compare(results, twice(arm), arm, measure).mean)
    return Gate(f"twice the steps move {arm} by", moved, POINT, "at most")


def inside(results: Sequence[Finished], grid: Tries, key: str = RATE) -> Gate:
    """How many arms' choice of `key` lies on the edge of its grid?"""
    edges = []
    for arm, tries in grid.items():
        values = sorted({tried[key] for tried in tries})
        taken = next(r.run.settings[key] for r in results if r.run.arm == arm)
        edges += [arm] if taken in (values[0], values[-1]) else []
    at = f" ({', '.join(edges)})" if edges else ""
    return Gate(f"choices of {key} on the edge of the grid{at}", float(len(edges)), 0.0, "at most")


def score(results: Sequence[Finished], arm: str, measure: str) -> float:
    """Mean over seeds and folds."""
    return interval(list(by_seed(results, arm, measure).values())).mean
