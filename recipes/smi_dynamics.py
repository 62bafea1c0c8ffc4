"""How SMI trains beside Barlow Twins: gradients, deviation of the features, redundancy over alignment.

Paper     Mishra et al. 2026 (SMI), figures 3, 4 and 6: ResNet-50 on CIFAR-10
Command   python -m recipes.smi_dynamics
Printed   curves without figures: SMI's gradients are smaller and smoother, its features deviate more, and the
          redundancy weighs less beside the alignment
Design    10,000 CIFAR-10 images, 16 px views, conv net 32-64-128, batch 256, 6 epochs, rate 2e-3, weights of
          recipes/ssl_losses.py (Barlow Twins 0.08, SMI 0.1), seeds 1 to 10.  The paper leaves weight and reduction
          open, so gradients are compared in two forms: SMI as a mean over samples, which is ours, and as a sum, which
          is its equation 5 and has the gradient times the batch.  Measures along the last nine tenths of the steps:
              log gradient   log10 of the norm of the whole gradient, mean over steps
              roughness      mean |change of log10 norm| from one step to the next; the same in both forms
              log ratio      log10 of weight x redundancy over alignment, mean over steps; the same in both forms
              deviation      of the features of the test images, mean over features, over their mean norm
Found     That gradients are smaller is a matter of the form: as a mean over samples they are 70 times smaller than
          Barlow Twins', as a sum 3.5 times larger.  The redundancy weighs less beside the alignment, as printed.  The
          features deviate less, not more: with one weight each, where the paper has several.
"""

import sys
from itertools import pairwise
from math import log10
from statistics import mean
from typing import Any

from jaxtyping import Float
from torch import Tensor

from recipes.encoder import Data, features, followed, known, load_parts, pixels, scores
from recipes.recipe import DATA, Printed, Recipe, Scores, main
from reglet.losses import BarlowTwinsLoss, SMILoss
from reglet.losses.base import OnViews
from reglet.runs import Run

WARM = 0.1  # of the steps, which are not looked at
LOSSES: dict[str, OnViews] = {
    "Barlow Twins": BarlowTwinsLoss(weight=0.08),
    "SMI": SMILoss(weight=0.1),
}


def compute(run: Run, data: Data) -> Scores:
    y, y_test = known(data.train), known(data.test)
    if run.arm == "raw pixels":
        return scores(pixels(data.train).flatten(1), y, pixels(data.test).flatten(1), y_test)
    learner, lines = followed(run, LOSSES[run.arm], data.train)
    x, x_test = features(learner, data.train), features(learner, data.test)
    found = dynamics(lines)
    summed = log10(run.settings["batch"]) if run.arm == "SMI" else 0.0
    found["log gradient, sum"] = found["log gradient"] + summed
    return {**scores(x, y, x_test, y_test), **found, "deviation": deviation(x_test)}


def dynamics(lines: list[dict[str, Any]]) -> Scores:
    """Of the steps after the first tenth.  Terms are the loss's own: its alignment, and its weighted redundancy."""
    steps = [line for line in lines if "grad_norm" in line]
    seen = steps[int(WARM * len(steps)) :]
    norms = [log10(line["grad_norm"]) for line in seen]
    return {
        "log gradient": mean(norms),
        "roughness": mean(abs(b - a) for a, b in pairwise(norms)),
        "log ratio": mean(log10(line["redundancy"] / alignment(line)) for line in seen),
    }


def alignment(line: dict[str, Any]) -> float:
    """By the name that the loss has for it."""
    found: float = line["alignment" if "alignment" in line else "invariance"]
    return found


def deviation(x: Float[Tensor, "n d"]) -> float:
    """Without a unit: twice the features deviate as much."""
    return float(x.std(0).mean() / x.norm(dim=1).mean() * x.shape[1] ** 0.5)


RECIPE = Recipe(
    name="smi_dynamics",
    paper="SMI",
    compute=compute,
    load=load_parts,
    data=DATA / "cifar10_12k.npz",
    settings={"epochs": 6, "batch": 256, "lr": 2e-3, "width": 32},
    arms={name: {} for name in (*LOSSES, "raw pixels")},
    base="Barlow Twins",
    measures=("linear", "log gradient", "log gradient, sum", "roughness", "log ratio", "deviation"),
    once=("raw pixels",),
    seeds=10,
    printed=(
        Printed("gradients are smaller, mean", "figure 3", "SMI", "Barlow Twins", sign=-1, measure="log gradient"),
        Printed("gradients are smaller, sum", "figure 3", "SMI", "Barlow Twins", sign=-1, measure="log gradient, sum"),
        Printed("gradients are smoother", "figure 3", "SMI", "Barlow Twins", sign=-1, measure="roughness"),
        Printed("features deviate more", "figure 4", "SMI", "Barlow Twins", measure="deviation"),
        Printed("redundancy weighs less", "figure 6", "SMI", "Barlow Twins", sign=-1, measure="log ratio"),
    ),
    baseline="Barlow Twins",
    reference="raw pixels",
    length="",
    share=6 * 10_000 / (300 * 50_000),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
