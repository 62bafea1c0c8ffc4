"""Several runs: differences of one from the first, over the same test images or over the same seeds."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reglet.compare import NAMES, sentence
from reglet.engine.settings import FREE
from reglet.report.gather import Missing, RunData
from reglet.runs import Paired, paired

Json = dict[str, Any]
PROBES = {"linear": "linear probe", "knn": "kNN"}
BY_CHANCE = 1.96


@dataclass(frozen=True)
class Difference:
    """Accuracy of `candidate` minus that of `base`, with a 95 % interval over the n test images that both were given.

    The interval is that of these two encoders: what another seed would do is not in it.
    """

    base: str
    candidate: str
    probe: str
    n: int
    difference: float
    low: float
    high: float

    @property
    def resolved(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class OverSeeds:
    """Two groups of runs that differ in their seeds alone, paired by seed.  scores: name -> what the pairs say."""

    base: str
    candidate: str
    scores: dict[str, Paired]
    sentence: str


def by_image(runs: list[RunData]) -> list[Difference]:
    """Of every run from the first, where both were tested on the same images."""
    base, *others = runs
    if isinstance(base.probes, Missing):
        return []
    found = []
    for other in others:
        if isinstance(other.probes, Missing) or other.probes.fingerprint != base.probes.fingerprint:
            continue
        for name in base.probes.right.keys() & other.probes.right.keys():
            a, b = base.probes.right[name], other.probes.right[name]
            m, e = paired_share(a, b)
            found.append(Difference(base.name, other.name, name, len(a), m, m - BY_CHANCE * e, m + BY_CHANCE * e))
    order = list(PROBES)
    return sorted(found, key=lambda d: order.index(d.probe) if d.probe in order else len(order))


def paired_share(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Mean and standard error of b - a, each 0 or 1.

    >>> paired_share(torch.tensor([True, False, False, True]), torch.tensor([True, True, False, True]))
    (0.25, 0.25)
    """
    d = b.double() - a.double()
    return float(d.mean()), float(d.std() / math.sqrt(len(d))) if len(d) > 1 else math.inf


def in_words(found: list[Difference], runs: list[RunData]) -> str | None:
    """The sentence for two runs of one seed each."""
    first = next((d for d in found if d.probe == "linear"), found[0] if found else None)
    if first is None or len(runs) != 2:
        return None
    seen = (
        f"{PROBES.get(first.probe, first.probe)} {100 * first.difference:+.1f} points "
        f"({100 * first.low:+.1f} to {100 * first.high:+.1f}) on the same {first.n:,} test images"
    )
    if not first.resolved:
        return f"{first.candidate} and {first.base} cannot be told apart: {seen}."
    better = "better" if first.difference > 0 else "worse"
    return (
        f"This {first.candidate} is {better} than this {first.base}: {seen}. Whether that is the method or the seed, "
        "one run of each cannot tell: reglet compare does."
    )


def over_seeds(runs: list[RunData]) -> OverSeeds | None:
    """Where the runs are two configurations over the same two seeds or more."""
    groups: dict[str, dict[int, RunData]] = {}
    for run in runs:
        if run.repeat.seed is not None and not isinstance(run.probes, Missing):
            groups.setdefault(_same(run.repeat.config), {})[run.repeat.seed] = run
    if len(groups) != 2:
        return None
    base, candidate = groups.values()
    seeds = sorted(base.keys() & candidate.keys())
    if len(seeds) < 2:
        return None
    scores = {}
    for probe in PROBES:
        rows = [[_accuracy(group[seed], probe) for seed in seeds] for group in (base, candidate)]
        if all(value is not None for row in rows for value in row):
            scores[probe] = paired(*([v for v in row if v is not None] for row in rows))
    if not scores:
        return None
    main = next(iter(scores))
    names = [next(iter(group.values())).name for group in (base, candidate)]
    return OverSeeds(names[0], names[1], scores, sentence(scores[main], PROBES[main]))


def _accuracy(run: RunData, probe: str) -> float | None:
    assert not isinstance(run.probes, Missing)
    row = run.probes.scores.get(probe)
    return None if row is None else float(row["accuracy"])


def _same(config: Json) -> str:
    kept = {key: value for key, value in config.items() if key not in FREE | {"seed"}}
    return json.dumps(kept, sort_keys=True, default=str)


@dataclass(frozen=True)
class Compared:
    """What `reglet compare` left in a directory: every number of compare.json, and the runs of the first seed."""

    stored: Json
    runs: list[Path]

    @property
    def names(self) -> dict[str, str]:
        return NAMES


def read_compare(folder: Path) -> Compared | None:
    path = folder / "compare.json"
    if not path.exists():
        return None
    return Compared(json.loads(path.read_text()), [folder / arm / "seed-0" for arm in ("base", "candidate")])
