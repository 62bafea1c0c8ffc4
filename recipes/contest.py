"""Arms in contest: a learning rate for all, runs over cases and seeds, a table with paired differences, and whether the
paper's ordering holds.

A case is a domain left out, or a data set.  The rate is chosen for plain training (ERM) by validation on what it was
trained on (the training domains' validation parts; DomainBed's training-domain rule), at a seed of its own.  It is then
every arm's, so that arms are compared at equal tuning.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import mean

from rich.console import Console

from recipes import arms
from recipes.arms import Result
from recipes.generalize import Training

TRIAL_SEED = 100
BASE = "ERM"


@dataclass(frozen=True)
class Contest:
    arms: Sequence[str]
    cases: Sequence[str]
    rates: Sequence[float]  # tried with ERM
    printed: Mapping[str, float]  # the paper's average for those arms that it has
    measures: Sequence[str] = ("test", "validation", "alignment", "uniformity")


def hold(
    contest: Contest,
    first: Training,
    compute: Callable[[Training, arms.D], Result],
    *,
    load: Callable[[Path], arms.D],
    options: argparse.Namespace,
    console: Console,
) -> None:
    """`first` gives steps, batch and digest.  Seed by seed, so that whatever is finished is paired."""

    def run(todo: list[Training]) -> list[Result]:
        return arms.execute(todo, compute, load=load, options=options, console=console, shown="test")

    trials = run(
        [replace(first, arm=BASE, case=case, seed=TRIAL_SEED, lr=lr) for lr in contest.rates for case in contest.cases]
    )
    lr = chosen(trials)
    results = run(
        [
            replace(first, arm=arm, case=case, seed=seed, lr=lr)
            for seed in range(options.seeds)
            for case in contest.cases
            for arm in contest.arms
        ]
    )
    rows = summarise(results, contest)
    tried = "; ".join(f"{rate:g}: {value:.2f}" for rate, value in by_rate(trials).items())
    text = "\n\n".join(
        [markdown(rows, contest), ordering(results, contest), f"Rate {lr:g}. Validation of ERM: {tried}"]
    )
    arms.report(options.out, trials + results, rows, text)


def by_rate(trials: Sequence[Result]) -> dict[float, float]:
    rates = sorted({t["run"]["lr"] for t in trials})
    return {lr: mean(t["validation"] for t in trials if t["run"]["lr"] == lr) for lr in rates}


def chosen(trials: Sequence[Result]) -> float:
    found = by_rate(trials)
    return max(found, key=found.__getitem__)


def by_seed(results: Sequence[Result], arm: str, measure: str, *, case: str | None = None) -> dict[int, float]:
    """For every seed the mean over cases, or the one case.  A seed with a case missing is left out."""
    mine = [r for r in results if r["run"]["arm"] == arm and case in (None, r["run"]["case"])]
    cases = len({r["run"]["case"] for r in results}) if case is None else 1
    values: dict[int, list[float]] = {}
    for r in mine:
        values.setdefault(r["run"]["seed"], []).append(r[measure])
    return {seed: mean(found) for seed, found in values.items() if len(found) == cases}


def summarise(results: Sequence[Result], contest: Contest) -> list[Result]:
    rows = []
    for arm in contest.arms:
        found = {m: by_seed(results, arm, m) for m in contest.measures}
        rows.append(
            {
                "arm": arm,
                "printed": contest.printed.get(arm),
                "seeds": len(found["test"]),
                "cases": {case: mean(by_seed(results, arm, "test", case=case).values()) for case in contest.cases},
                "mean": {m: arms.interval(list(values.values())) for m, values in found.items()},
                "difference": {m: arms.paired(values, by_seed(results, BASE, m)) for m, values in found.items()},
            }
        )
    return rows


def markdown(rows: Sequence[Result], contest: Contest) -> str:
    """Test accuracy of every case and their mean, its difference from ERM; of the other measures the means."""
    others = [m for m in contest.measures if m != "test"]
    cases = list(contest.cases) if len(contest.cases) > 1 else []
    header = ["arm", "paper", *cases, "test", f"minus {BASE}", *others]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        printed = "" if row["printed"] is None else f"{row['printed']:.1f}"
        each = [f"{row['cases'][case]:.1f}" for case in cases]
        ours = ["{:.2f} ± {:.2f}".format(*row["mean"]["test"])]
        ours += ["" if row["arm"] == BASE else "{:+.2f} ± {:.2f}".format(*row["difference"]["test"])]
        ours += [f"{row['mean'][m][0]:.2f}" for m in others]
        lines.append("| " + " | ".join([row["arm"], printed, *each, *ours]) + " |")
    return "\n".join(lines)


def ordering(results: Sequence[Result], contest: Contest) -> str:
    """One sentence on all pairs of arms to which the paper gives different figures."""
    same, reverse = list[bool](), list[bool]()
    for a, b in combinations([arm for arm in contest.arms if arm in contest.printed], 2):
        expected = contest.printed[a] - contest.printed[b]
        if expected:
            found, half = arms.paired(by_seed(results, a, "test"), by_seed(results, b, "test"))
            (same if found * expected > 0 else reverse).append(abs(found) > half)
    if not same + reverse:
        return "The paper has no figure for these arms."
    verdict = "is not resolved"
    if sum(reverse):
        verdict = "does not hold"
    elif sum(same):
        verdict = "is not contradicted"
    return (
        f"Of the {len(same) + len(reverse)} pairs of arms that the paper ranks, {len(same)} have its order here "
        f"({sum(same)} beyond their 95 % interval) and {len(reverse)} the reverse ({sum(reverse)} beyond it): "
        f"its ordering {verdict} here."
    )
