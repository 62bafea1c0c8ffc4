"""SMI against Barlow Twins over batch sizes 32 to 256, at an equal number of steps.

Paper     Mishra et al. 2026 (SMI): no need of large batches is claimed, and small sets at batch 256 are printed
Command   python -m recipes.smi_batch_size
Printed   batch 256, ResNet-50, linear probe, Barlow Twins -> SMI: CIFAR-10 89.90 -> 90.64, CIFAR-100 65.24 -> 66.35,
          ImageNette 87.77 -> 90.55, ImageWoof 68.92 -> 75.03.  No other batch size.
Design    Data, network and scores of recipes/ssl_losses.py.  Weight and rate of both losses are chosen at batch 128 by
          twenty trials each; at other batches the rate is times sqrt(batch / 128).  Not run yet: the
          verdicts are those of the design before.
Before    2026-11-16, commit 3d51f8e, seeds 0 to 2: 10,000 CIFAR-10 images, 6 epochs whatever the batch.  SMI less
          Barlow Twins by a linear probe: +0.3 +- 3.0 at batch 32, +2.1 +- 2.7 at 64, +2.1 +- 3.8 at 128, +2.6 +- 0.8 at
          256; by 20 neighbours +3.8 +- 3.5, +4.6 +- 3.0, +5.2 +- 1.9, +7.5 +- 1.0.  Both rates lay on the edge of
          their grids, and steps were not separated from the batch.
"""

import sys
from dataclasses import replace

from recipes.encoder import Data
from recipes.recipe import Printed, Recipe, Scores, main
from recipes.ssl_losses import RECIPE as LOSSES
from recipes.ssl_losses import compute as at_batch
from reglet.runs import Run

WEIGHTS = {"Barlow Twins": (0.0051, 0.02, 0.08, 0.3), "SMI": (0.025, 0.1, 0.4, 1.6)}
RATES = (1e-3, 3e-3, 8e-3, 2e-2, 5e-2)
TUNED = 128  # the batch size of the trials


def scaled(lr: float, batch: int) -> float:
    """lr sqrt(batch / tuned): a step of Adam is as long as the rate, and its noise falls with the root of the batch."""
    return lr * (batch / TUNED) ** 0.5


def compute(run: Run, data: Data) -> Scores:
    """The fold is the batch size."""
    s, batch = run.settings, int(run.fold)
    return at_batch(replace(run, settings={**s, "batch": batch, "lr": scaled(s["lr"], batch)}), data)


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
    load=LOSSES.load,
    settings={"steps": 200, **{k: v for k, v in LOSSES.settings.items() if k not in ("epochs", "batch")}},
    arms={name: {"loss": name} for name in WEIGHTS} | {"raw pixels": {}},
    folds=("32", "64", "128", "256"),
    base="Barlow Twins",
    measures=LOSSES.measures,
    grid={name: [{"weight": w, "lr": lr} for w in weights for lr in RATES] for name, weights in WEIGHTS.items()},
    trial_folds=(str(TUNED),),
    chosen_by=LOSSES.chosen_by,
    once=LOSSES.once,
    printed=_printed(),
    baseline="Barlow Twins",
    reference="raw pixels",
    share=200 * 128 / (300 * 50_000),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
