"""VISReg without its parts, with other weights, with fewer slices, and beside its rivals: a long tail of small digits.

Paper     Wu et al. 2026: knock-out, stop-gradient and weight ratio tables, number of slices, ImageNet-LT table
Command   python -m recipes.visreg_digits
Printed   recipes/visreg_ablation.py, visreg_ratios.py and visreg_slices.py have the figures, all by a linear probe
Design    scikit-learn's 1,797 digits of 8 x 8 px enlarged to 16: 719 for testing, 216 balanced ones held out, and of
          the 862 others a tail of imbalance 10 (294).  Trained on the tail as in recipes/visreg_ablation.py, with the
          views of `digits` and a conv net 16-32-64, 200 steps of 256.  The linear probe is fitted on five balanced
          labels a class, twenty times over, so that accuracy has room above and little noise.
Why       On a tail of CIFAR-10 a linear probe does not settle at any size tried, and a probe fitted on the tail of
          digits does not either (recipes/README.md).  This one moved by 0.06 from 200 to 400 steps (seeds 101 to 105).
Measured  2026-11-18, tag evidence-2026-11-18i and commit 2c4f119, seeds 1 to 8 (1 to 5 first, then more where power
          asked).  Figures: recipes/summaries.  The full loss has 91.5, raw pixels 82.8; twice the steps move it by 0.88
          (five seeds), which is near the gate's 1.
Found     Without scale 26 points are lost, without shape 9: as printed in kind, and less.  Shape 4:1 costs 2.8, where
          the paper gains 3.2; scale 4:1 costs 2.4.  1,024 slices gain 1.1 (VISReg), 2.9 (SWD) and 3.9 (SIGReg) over
          128; 13.9 are printed for SIGReg.  VISReg is above VICReg by 1.4, where the paper has it 1.0 below.  Centre,
          stop-gradient, and whether VISReg is level with SWD and SIGReg need more seeds.
          Mind: these lines replace those by a linear probe on a tail of CIFAR-10, none of which had a verdict.
"""

import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from recipes.dose import Dose
from recipes.encoder import Data, features, known, pixels, pretrain, rank
from recipes.recipe import Scores, main
from recipes.visreg_ablation import CLAIMS, KNOCKED_OUT, STRENGTH, objective, recipe, tail_and_rest
from recipes.visreg_ratios import CLAIMS as OF_RATIOS
from recipes.visreg_ratios import RATIOS
from recipes.visreg_slices import CLAIMS as OF_SLICES
from recipes.visreg_slices import RIVALS, SLICES
from reglet.data import InMemory
from reglet.data.splits import hold_out
from reglet.probes import linear_probe
from reglet.runs import Run

TEST, IMBALANCE = 0.4, 10.0
EPOCHS = 200  # of one step each
LABELS, DRAWS = 5, 20  # of each class that a probe is fitted on, and how often they are drawn
FEW = "few labels"
BOTH = "no scale, no detach"  # of no claim


def load(_: Path) -> Data:
    from sklearn.datasets import load_digits

    found = load_digits()
    y = torch.from_numpy(found.target).long()
    x = (torch.from_numpy(found.images) / 16 * 255).round().to(torch.uint8)[:, None].repeat(1, 3, 1, 1)
    train, test = (InMemory(x[i], labels=y[i], name="small digits") for i in hold_out(len(y), TEST))
    return Data(train, test)


def compute(run: Run, data: Data) -> Scores:
    train, held = tail_and_rest(data.train, imbalance=run.settings["imbalance"])
    if run.arm == "raw pixels":
        return {FEW: few_labels(pixels(held).flatten(1), known(held), pixels(data.test).flatten(1), known(data.test))}
    dose = Dose()
    learner = pretrain(run, objective(run), train, dose=dose)
    x_test, z_test = features(learner, data.test), features(learner, data.test, embedding=True)
    found = {
        FEW: few_labels(features(learner, held), known(held), x_test, known(data.test)),
        "rank": rank(x_test),
        "embedding_rank": rank(z_test),
        "embedding_std": float(z_test.std(0).mean()),
    }
    return found | dose.scores


def few_labels(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor) -> float:
    """The mean accuracy in per cent of linear probes fitted on a few labels of every class, the same in all runs."""
    generator = torch.Generator().manual_seed(0)
    members = [(y == c).nonzero()[:, 0] for c in y.unique()]
    return mean(
        100 * linear_probe(x[drawn], y[drawn], x_test, y_test, strengths=(STRENGTH,)).accuracy
        for drawn in (
            torch.cat([m[torch.randperm(len(m), generator=generator)[:LABELS]] for m in members]) for _ in range(DRAWS)
        )
    )


_like = recipe(
    "visreg_digits",
    {arm: changes for arm, changes in (KNOCKED_OUT | RATIOS | SLICES | RIVALS).items() if arm != BOTH},
    [*CLAIMS, *OF_RATIOS, *OF_SLICES],
    base="full",
    baseline="full",
    width=16,
)
RECIPE = replace(
    _like,
    compute=compute,
    load=load,
    measures=(FEW, "rank", "embedding_rank", "embedding_std"),
    data=None,
    settings={**_like.settings, "views": "digits", "epochs": EPOCHS, "imbalance": IMBALANCE},
    share=EPOCHS * 256 / (400 * 115_846),  # of ImageNet-LT's
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
