"""LatentDR and its rivals on rotated digits, leave one angle out.

Paper     Liu et al., LatentDR, table 1
Command   python -m recipes.rotated_digits
Machine   one core, no GPU; 4.1 CPU minutes
Printed   no rotated digits; in the column "paper" its averages over five image sets
Measured  2026-11-16, commit ce63aa4, torch 2.13.0, three paired seeds (0 to 2).  scikit-learn's 1,797 digits,
          each at one of six angles, on 12 px; conv net 32-64-128, 80 steps of 8 a domain by Adam.  Rate 0.01,
          of 3e-3 and 1e-2, by training-domain validation of ERM at seed 100; LatentDR at half of it.  Accuracy on the
          larger part of the angle left out in %, mean over angles and 95 % interval (Student's t over seeds),
          differences paired by seed.

          arm                paper       0      15      30      45      60      75   mean         minus ERM      valid.
          ERM                 62.9    65.0    89.4    90.1    90.9    88.0    79.9   83.9 +- 3.6                   93.0
          ERM, half rate              65.3    90.3    89.2    90.1    87.3    76.6   83.1 +- 5.4  -0.8 +- 3.7      92.9
          Mixup               63.6    63.1    89.9    87.2    87.9    84.7    72.9   80.9 +- 7.4  -3.0 +- 5.1      91.6
          MixStyle            60.3    64.9    91.4    86.5    89.5    86.5    75.3   82.4 +- 5.3  -1.6 +- 3.4      92.3
          BatchFormer         63.3    58.5    84.0    81.7    83.3    78.9    65.1   75.3 +- 8.2  -8.7 +- 5.7      86.4
          CORAL               64.5    66.1    90.8    88.9    90.9    88.3    81.0   84.3 +- 4.7  +0.4 +- 2.5      93.2
          LatentDR SA         65.7    60.3    89.6    86.0    86.2    83.8    72.0   79.6 +- 6.0  -4.3 +- 3.0      91.2
          LatentDR Pool       65.2    59.4    86.9    83.9    84.4    81.5    68.3   77.4 +- 5.2  -6.5 +- 3.9      90.0

Since     Rebuilt on the one loop and the one runner: the rate of every arm is searched, LatentDR at full and half rate,
          seeds 1 to 5, verdicts by rule.  Not run since.

Found     Of the 21 pairs of arms that the paper ranks, 9 have its order here (5 beyond their 95 % interval) and 12 the
          reverse (9 beyond it): its ordering does not hold here.  LatentDR is below ERM at its own half rate, too.
          Mind: 80 steps.  Sizes and rate grid were settled on single runs of seed 0 whose test accuracy was seen.
"""

import math
import sys
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from recipes.dose import Dose
from recipes.generalize import BASE, PIXELS, Labelled, Network, against_base, probe_pixels, scores, searched, see, train
from recipes.recipe import Printed, Recipe, Scores, main
from reglet.backbones import ConvNet
from reglet.methods.domains import leave_out
from reglet.runs import Run

ANGLES = tuple(range(0, 90, 15))  # degrees, as in RotatedMNIST
SIZE = 12
PAPER = {  # averages over PACS, VLCS, OfficeHome, TerraIncognita and DomainNet
    "ERM": 62.9,
    "Mixup": 63.6,
    "Manifold Mixup": 63.7,
    "MixStyle": 60.3,
    "BatchFormer": 63.3,
    "CORAL": 64.5,
    "LatentDR SA": 65.7,
    "LatentDR Pool": 65.2,
}
HALF = "table 1, five image sets, half rate"
NAMES = (
    BASE,
    "ERM, half rate",
    "Mixup",
    "MixStyle",
    "BatchFormer",
    "CORAL",
    "LatentDR SA",
    "LatentDR SA, half rate",
    "LatentDR Pool",
    "LatentDR Pool, half rate",
)


def load(_: Path) -> Labelled:
    """scikit-learn's 1,797 digits of 8 x 8 pixels, each at one angle alone, on 12 x 12."""
    from sklearn.datasets import load_digits

    found = load_digits()
    glyphs = torch.from_numpy(found.images).float()[:, None] / 16
    order = torch.randperm(len(glyphs), generator=torch.Generator().manual_seed(0))
    domain = torch.empty(len(glyphs), dtype=torch.int64)
    domain[order] = torch.arange(len(glyphs)) % len(ANGLES)
    degrees = torch.tensor(ANGLES, dtype=torch.float32)[domain]
    return Labelled(rotated(glyphs, degrees) - 0.5, torch.from_numpy(found.target).long(), domain, classes=10)


def rotated(x: Float[Tensor, "n 1 h w"], degrees: Float[Tensor, " n"]) -> Float[Tensor, "n 1 s s"]:
    """Anticlockwise, in a frame that is half as large again, so that no corner is lost."""
    cos, sin = (degrees * math.pi / 180).cos(), (degrees * math.pi / 180).sin()
    zero = torch.zeros_like(cos)
    theta = SIZE / 8 * torch.stack([torch.stack([cos, -sin, zero], 1), torch.stack([sin, cos, zero], 1)], 1)
    grid = affine_grid(theta, [len(x), 1, SIZE, SIZE], align_corners=False)
    return grid_sample(x, grid, align_corners=False)


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    body = ConvNet(widths=(32, 64, 128), in_channels=1)
    blocks = [f"stages.{i}" for i in range(3)]
    return Network(body, blocks=blocks, style=blocks[:2])


def compute(run: Run, data: Labelled) -> Scores:
    """The fold is the angle left out."""
    split = leave_out(data.domain, ANGLES.index(int(run.fold)), seed=run.seed)
    if run.arm == PIXELS:
        return probe_pixels(data, split.train, data, split.test)
    dose = Dose()
    trained = train(run, network(run.seed), data, split.train, dose=dose)
    seen = [see(trained, data, i) for i in split.validation.values()]
    return scores(see(trained, data, split.test), seen) | dose.scores


RECIPE = Recipe(
    name="rotated_digits",
    paper="LatentDR",
    compute=compute,
    load=load,
    settings={"steps": 800, "per_domain": 8, "lr": 3e-3},
    arms={name: {} for name in (*NAMES, PIXELS)},
    folds=tuple(map(str, ANGLES)),
    trial_folds=("0", "45"),
    seeds=8,
    base=BASE,
    measures=("test", "validation", "alignment", "uniformity"),
    printed=(
        *against_base({arm: score for arm, score in PAPER.items() if arm in NAMES}, "table 1, five image sets"),
        *(
            Printed(f"{arm} at half the rate, as in the paper, against {BASE}", HALF, f"{arm}, half rate", BASE, effect)
            for arm, effect in (("LatentDR SA", 2.8), ("LatentDR Pool", 2.3))
        ),
        *(
            Printed(f"{arm} has a better {measure} than {BASE}", "figure 4", arm, BASE, sign=-1, measure=measure)
            for arm in ("LatentDR SA", "LatentDR Pool")
            for measure in ("alignment", "uniformity")
        ),
    ),
    baseline=BASE,
    reference=PIXELS,
    **searched(NAMES, (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
