"""SMI against Barlow Twins over batch sizes 32 to 256, at an equal number of images seen.

Paper     Mishra et al. 2026 (SMI): no need of large batches is claimed, and small sets at batch 256 are printed
Command   python -m recipes.smi_batch_size
Machine   two cores, no GPU; 31 CPU minutes, so 16 minutes of both cores
Printed   batch 256, ResNet-50, linear probe, Barlow Twins -> SMI: CIFAR-10 89.90 -> 90.64, CIFAR-100 65.24 -> 66.35,
          ImageNette 87.77 -> 90.55, ImageWoof 68.92 -> 75.03.  No other batch size.
Measured  2026-11-16, commit 3d51f8e, torch 2.13.0.  10,000 training images, 16 px views (see recipes/encoder.py), 6
          epochs whatever the batch, so 1,872 steps at 32 and 234 at 256.  Weight and rate chosen at batch 128 by nine
          trials of each loss (4 epochs of 8,000 training images, linear probe on the other 2,000): Barlow Twins 0.02
          and 4e-3, SMI 0.1 and 4e-3; at other batches the rate is times sqrt(batch / 128).  Three seeds (0 to 2):
          accuracy on the 2,000 test images in %, mean and 95 % interval over seeds (Student's t), differences paired
          by seed.

          linear   Barlow Twins     SMI              SMI minus Barlow Twins
          32       47.05 +- 0.81    47.38 +- 2.61    +0.33 +- 2.98
          64       46.73 +- 1.25    48.78 +- 2.98    +2.05 +- 2.71
          128      46.57 +- 2.84    48.67 +- 2.59    +2.10 +- 3.77
          256      46.00 +- 2.12    48.60 +- 1.83    +2.60 +- 0.81
          20-NN
          32       41.08 +- 3.36    44.83 +- 1.13    +3.75 +- 3.48
          64       41.65 +- 2.64    46.23 +- 1.76    +4.58 +- 2.98
          128      41.27 +- 1.81    46.50 +- 0.90    +5.23 +- 1.87
          256      39.50 +- 0.87    46.97 +- 0.93    +7.47 +- 1.01

Since     That commit had seeds 0 to 2 and grids of three weights and three rates, on whose edges both choices lay; now
          seeds 1 to 5, four by four with larger weights and rates, and gates.  Not run since.

Found     SMI is above Barlow Twins at every batch size: by neighbours at each of the four with an interval above
          zero, by linear probe at 256 only, and averaged over the four by +1.8 +- 0.3 (linear) and +5.3 +- 0.8
          (20-NN).  At batch 256 the paper prints +0.7 for CIFAR-10, so the order holds.  That SMI depends less on the
          batch is not seen: its lead is smallest at batch 32, and neighbours read SMI worse there than at 256 (-2.1
          +- 2.0), while for Barlow Twins no difference between 32 and 256 is resolved (linear +1.1 +- 1.3, 20-NN +1.6
          +- 4.1).  From 32 to 256 the lead grows by 2.3 +- 3.2 (linear) and 3.7 +- 4.5 (20-NN), which three seeds do
          not resolve either.
          Mind: batch size and number of steps are not separated, since all see as many images; both weights and both
          rates chosen are the largest of their grids, and by linear probe alone: recipes/ssl_losses.py, with a larger
          weight and half the rate for Barlow Twins, has SMI's lead by neighbours at batch 128 at 3.6 instead of 5.2.
"""

import sys
from dataclasses import replace

from recipes.encoder import SETTINGS, Data, features, known, load_parts, pixels, pretrain, rank, scores, try_out
from recipes.recipe import DATA, Printed, Recipe, Scores, main
from reglet.losses import BarlowTwinsLoss, SMILoss
from reglet.losses.base import OnViews
from reglet.runs import Run

WEIGHTS = {"Barlow Twins": (0.0051, 0.02, 0.08, 0.3), "SMI": (0.025, 0.1, 0.4, 1.6)}
RATES = (1e-3, 2e-3, 4e-3, 8e-3)
TUNED = 128  # the batch size of the trials


def objective(run: Run) -> OnViews:
    weight = run.settings["weight"]
    return SMILoss(weight=weight) if run.settings["loss"] == "SMI" else BarlowTwinsLoss(weight=weight)


def scaled(lr: float, batch: int) -> float:
    """lr sqrt(batch / tuned): a step of Adam is as long as the rate, and its noise falls with the root of the batch."""
    return lr * (batch / TUNED) ** 0.5


def compute(run: Run, data: Data) -> Scores:
    """The fold is the batch size."""
    y, y_test = known(data.train), known(data.test)
    if run.arm == "raw pixels":
        return scores(pixels(data.train).flatten(1), y, pixels(data.test).flatten(1), y_test)
    batch = int(run.fold)
    run = replace(run, settings={**run.settings, "batch": batch, "lr": scaled(run.settings["lr"], batch)})
    if run.settings.get("trial"):
        return try_out(run, objective(run), data.train)
    learner = pretrain(run, objective(run), data.train)
    x_test = features(learner, data.test)
    return {**scores(features(learner, data.train), y, x_test, y_test), "rank": rank(x_test)}


def _printed() -> list[Printed]:
    """The paper prints batch 256 alone, and says that smaller ones need not lose."""
    found = [Printed("SMI above Barlow Twins at batch 256", "table 3", "SMI", "Barlow Twins", 0.74, folds=("256",))]
    for batch in ("32", "64", "128"):
        claim = f"SMI above Barlow Twins at batch {batch}"
        found.append(Printed(claim, "no need of large batches", "SMI", "Barlow Twins", folds=(batch,)))
    return found


RECIPE = Recipe(
    name="smi_batch_size",
    paper="SMI",
    compute=compute,
    load=load_parts,
    data=DATA / "cifar10_12k.npz",
    settings=SETTINGS | {"epochs": 6},
    arms={"Barlow Twins": {"loss": "Barlow Twins"}, "SMI": {"loss": "SMI"}, "raw pixels": {}},
    folds=("32", "64", "128", "256"),
    base="Barlow Twins",
    measures=("linear", "knn", "rank"),
    grid={name: [{"weight": w, "lr": lr} for w in weights for lr in RATES] for name, weights in WEIGHTS.items()},
    trial={"epochs": 4},
    trial_folds=(str(TUNED),),
    once=("raw pixels",),
    printed=_printed(),
    baseline="Barlow Twins",
    reference="raw pixels",
    length="epochs",
    share=6 * 10_000 / (300 * 50_000),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
