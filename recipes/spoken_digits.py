"""LatentDR and its rivals on spoken digits, leave one speaker out: a shift of domain outside images.

Paper     Liu et al., LatentDR, table 1: no sound there; the figures beside ours are its averages over five image sets
Command   python -m recipes.spoken_digits
Machine   one core, no GPU; 4.0 CPU minutes
Printed   in the column "paper"
Measured  2026-11-16, commit ce63aa4, torch 2.13.0, three paired seeds (0 to 2); sizes as below.  Rate 1e-2, of 3e-3 and
          1e-2, by training-domain validation of ERM at seed 100; LatentDR at half of it.  Accuracy on the larger part
          of the speaker left out in %, mean over speakers and 95 % interval (Student's t over seeds), paired by seed.

          arm             paper  geor.  jack.  luc.   nic.   theo   ywew.  mean          minus ERM      valid.
          ERM              62.9   52.1   73.7   54.8   72.5   76.3   79.9   68.2 +- 9.0                   97.7
          ERM, half rate          53.1   72.9   60.6   72.3   73.9   81.4   69.0 +- 5.5   +0.8 +- 3.6     97.2
          MixStyle         60.3   50.0   73.5   54.8   73.2   72.2   78.6   67.0 +- 5.2   -1.2 +- 4.6     97.3
          BatchFormer      63.3   44.2   73.0   49.7   69.7   70.3   73.5   63.4 +- 3.7   -4.8 +- 11.2    96.0
          LatentDR SA      65.7   52.8   74.4   57.7   72.7   71.7   78.2   67.9 +- 2.9   -0.3 +- 6.8     96.4
          LatentDR Pool    65.2   57.6   71.9   51.4   75.5   68.2   79.2   67.3 +- 4.9   -0.9 +- 7.4     95.9

Since     Rebuilt on the one loop and the one runner: the rate of every arm is searched, LatentDR at full and half rate,
          800 steps, eight seeds, verdicts by rule.  Not run since.

Found     Of the 10 pairs of arms that the paper ranks, 6 have its order here (1 beyond its 95 % interval) and 4 the
          reverse (none beyond it): the ordering is not contradicted, and hardly tested.  LatentDR is level with ERM:
          -0.3 +- 6.8 and -0.9 +- 7.4, and so with ERM at its own half rate.
          Mind: three seeds leave intervals of several points.  Sizes and rate grid were settled on single runs of
          seed 0 whose test accuracy was seen.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import avg_pool2d

from recipes.dose import Dose
from recipes.generalize import BASE, PIXELS, Labelled, Network, against_base, probe_pixels, scores, searched, see, train
from recipes.recipe import DATA, Recipe, Scores, main
from recipes.rotated_digits import PAPER
from reglet.backbones import ConvNet
from reglet.methods.domains import leave_out
from reglet.runs import Run

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
NAMES = (
    BASE,
    "ERM, half rate",
    "MixStyle",
    "BatchFormer",
    "LatentDR SA",
    "LatentDR SA, half rate",
    "LatentDR Pool",
    "LatentDR Pool, half rate",
)


def load(path: Path) -> Labelled:
    """Log-mel spectrograms of 3,000 recordings, averaged to 20 bands x 40 frames of 20 ms."""
    with np.load(path) as archive:
        x, y, domain = (torch.from_numpy(archive[key]) for key in ("images", "labels", "domain"))
    pooled = avg_pool2d(x.permute(0, 3, 1, 2).float() / 127.5 - 1, 2)
    return Labelled(pooled, y.long(), domain.long(), classes=10)


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    body = ConvNet(widths=(16, 32, 64, 128), stride=2, in_channels=1)
    blocks = [f"stages.{i}" for i in range(4)]
    return Network(body, blocks=blocks, style=blocks[:2])


def compute(run: Run, data: Labelled) -> Scores:
    """The fold is the speaker left out."""
    split = leave_out(data.domain, SPEAKERS.index(run.fold), seed=run.seed)
    if run.arm == PIXELS:
        return probe_pixels(data, split.train, data, split.test)
    dose = Dose()
    trained = train(run, network(run.seed), data, split.train, dose=dose)
    seen = [see(trained, data, i) for i in split.validation.values()]
    return scores(see(trained, data, split.test), seen) | dose.scores


RECIPE = Recipe(
    name="spoken_digits",
    paper="LatentDR",
    compute=compute,
    load=load,
    data=DATA / "fsdd_logmel.npz",
    settings={"steps": 800, "per_domain": 16, "lr": 1e-2},
    arms={name: {} for name in (*NAMES, PIXELS)},
    folds=SPEAKERS,
    trial_folds=SPEAKERS[:2],
    seeds=8,
    fewer={name: 5 for name in (*NAMES, PIXELS) if "half rate" in name or name == PIXELS},
    base=BASE,
    baseline=BASE,
    reference=PIXELS,
    measures=("test", "validation", "alignment", "uniformity"),
    printed=against_base({arm: score for arm, score in PAPER.items() if arm in NAMES}, "table 1, five image sets"),
    **searched(NAMES, (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
