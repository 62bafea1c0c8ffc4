"""LatentDR and its rivals on rotated digits, leave one angle out.

Paper     Liu et al., LatentDR, table 1
Command   python -m recipes.rotated_digits
Machine   two cores that others used too, no GPU; 45 CPU minutes
Printed   no rotated digits; in the column "paper" its averages over five image sets
Measured  2026-11-18, tag evidence-2026-11-18a and commit 4824d4d, torch 2.13.0, seeds 1 to 8, paired (twice the steps:
          1 to 5).  scikit-learn's 1,797 digits, each at one of six angles, on 12 px; conv net 32-64-128, 800 steps of 8
          a domain by Adam.  The rate of every arm is one of five (3e-4 to 3e-2), by training-domain validation on two
          angles at seed 100; half-rate arms have half of ERM's.  Accuracy on the larger part of the angle left out in
          %, mean over six angles, 95 % interval (Student's t over seeds), differences paired by seed; then alignment
          and uniformity of the test latents, both better lower.

          arm                        paper  rate  mean          minus ERM      valid.  align.  unif.
          ERM                         62.9  1e-3  88.2 +- 0.7                  96.8    0.27    -1.54
          ERM, twice the steps              1e-3  88.3 +- 1.2   +0.2 +- 0.7    97.2    0.27    -1.55
          ERM, half rate                    5e-4  87.2 +- 0.6   -1.0 +- 0.5    96.4    0.28    -1.53
          Mixup                       63.6  1e-2  89.1 +- 0.5   +0.9 +- 0.9    96.8    0.22    -1.04
          MixStyle                    60.3  3e-3  89.2 +- 0.6   +1.0 +- 0.8    96.7    0.27    -1.51
          BatchFormer                 63.3  3e-3  88.6 +- 0.7   +0.5 +- 0.8    96.8    0.27    -1.52
          CORAL                       64.5  1e-2  90.2 +- 0.6   +2.1 +- 1.0    97.4    0.15    -0.82
          LatentDR SA                 65.7  3e-3  88.9 +- 0.6   +0.7 +- 0.7    97.2    0.27    -1.59
          LatentDR SA, half rate            5e-4  87.5 +- 0.4   -0.7 +- 0.5    96.4    0.28    -1.50
          LatentDR Pool               65.2  3e-3  89.0 +- 0.6   +0.9 +- 0.8    97.2    0.26    -1.62
          LatentDR Pool, half rate          5e-4  86.5 +- 0.8   -1.7 +- 0.9    96.0    0.29    -1.54
          raw pixels                              66.8 +- 2.3

Found     CORAL gains as much as printed.  With 80 steps LatentDR was 4 to 6 points behind ERM; with 800 and a rate of
          its own it is level or a little above, and gains as large as the printed ones (2.8 and 2.3) are excluded.  At
          half of ERM's rate, as in the paper, it is below ERM, as ERM at half rate is.  Its latents are spread more
          evenly than ERM's, and with pooling aligned better, as the paper's figure 4 says.
          Mind: ERM's trials tied at 1e-3 and 3e-3, and the smaller rate was taken.  Sizes were settled on single runs
          of seed 0 whose test accuracy was seen.
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
    seeds=40,
    fewer={name: 8 for name in (*NAMES, PIXELS) if name not in (BASE, "Mixup", "LatentDR SA")},  # eight decide the rest
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
