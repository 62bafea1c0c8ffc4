"""SMI against Barlow Twins at the smallest and the largest of four batch sizes, at an equal number of steps.

Paper     Mishra et al. 2026 (SMI): no need of large batches is claimed, and small sets at batch 256 are printed
Command   python -m recipes.smi_batch_size
Printed   batch 256, ResNet-50, linear probe, Barlow Twins -> SMI: CIFAR-10 89.90 -> 90.64, CIFAR-100 65.24 -> 66.35,
          ImageNette 87.77 -> 90.55, ImageWoof 68.92 -> 75.03.  No other batch size.
Design    Data, network and scores of recipes/ssl_losses.py, which has batch 128; 800 steps.  Weight and rate of both
          losses are those that its trials of 400 steps chose there; at other batches the rate is times sqrt(batch /
          128).
Measured  2026-11-19, seeds 1 to 12.  Figures, commits and minutes: recipes/summaries/smi_batch_size.json.
Found     At batch 256 Barlow Twins has settled (twice the steps move it by 0.5), and SMI is 0.7 +- 0.4 below it: the
          printed +0.74 is excluded.  At batch 32 SMI leads by 1.7 +- 0.8; this does not count, because twice the steps
          move Barlow Twins by 2.7, so the faster learner leads.
Before    With 400 steps and five seeds SMI led by 3.0 +- 1.6 at batch 32 and by 0.4 +- 1.4 at 256, and Barlow Twins had
          settled at neither: a lead at equal steps can be a lead in time alone.
"""

import sys
from dataclasses import replace

from recipes.encoder import Data
from recipes.recipe import Printed, Recipe, Scores, main
from recipes.ssl_losses import RECIPE as LOSSES
from recipes.ssl_losses import compute as at_batch
from reglet.runs import Run

CHOSEN = {"Barlow Twins": {"weight": 0.02, "lr": 1.6e-2}, "SMI": {"weight": 0.025, "lr": 1.6e-2}}
TUNED = 128  # the batch size for which they were chosen


def scaled(lr: float, batch: int) -> float:
    """lr sqrt(batch / tuned): a step of Adam is as long as the rate, and its noise falls with the root of the batch."""
    return lr * (batch / TUNED) ** 0.5


def compute(run: Run, data: Data) -> Scores:
    """The fold is the batch size."""
    s, batch = run.settings, int(run.fold)
    return at_batch(replace(run, settings={**s, "batch": batch, "lr": scaled(s["lr"], batch)}), data)


RECIPE = Recipe(
    name="smi_batch_size",
    paper="SMI",
    compute=compute,
    load=LOSSES.load,
    settings={"steps": 800, **{k: v for k, v in LOSSES.settings.items() if k not in ("epochs", "batch")}},
    arms={name: {"loss": name, **chosen} for name, chosen in CHOSEN.items()} | {"raw pixels": {}},
    folds=("32", "256"),
    base="Barlow Twins",
    measures=LOSSES.measures,
    once=LOSSES.once,
    seeds=12,
    printed=(
        Printed("SMI above Barlow Twins at batch 32", "no need of large batches", "SMI", "Barlow Twins", folds=("32",)),
        Printed("SMI above Barlow Twins at batch 256", "table 3", "SMI", "Barlow Twins", 0.74, folds=("256",)),
    ),
    baseline="Barlow Twins",
    reference="raw pixels",
    share=800 * 128 / (300 * 50_000),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
