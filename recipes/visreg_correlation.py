"""Does VISReg's loss tell the accuracy?  Their correlation along a run.

Paper     Wu et al. 2026, correlation figure of the appendix: ViT-L/14 on ImageNet-1k, 100 epochs
Command   python -m recipes.visreg_correlation
Printed   Pearson correlation of the loss and the accuracy of an online probe along training: -0.996
Design    10,000 CIFAR-10 images, 16 px views, conv net 32-64-128, lam 0.6, batch 256, 8 epochs, seeds 1 to 5.  At
          16 equal distances: the mean of the loss over the steps since the last one, and the accuracy of a linear
          probe on the 2,000 test images.  Compared with 0, which is no relation.  Whether training has settled does
          not matter to it.
Found     The loss falls as the accuracy rises, less tightly than printed: -0.91 on average.
"""

import sys
from statistics import correlation, mean
from typing import Any

from recipes.encoder import Data, features, followed, known, load_parts, pixels, scores
from recipes.recipe import DATA, Printed, Recipe, Scores, main
from reglet.engine.monitor import AtCheckpoints, Trained
from reglet.losses import VISRegLoss
from reglet.method import Method
from reglet.probes import linear_probe
from reglet.runs import Run

POINTS = 16
PROBED = 2000  # training images that the probe on the way is fitted to
STRENGTH = 1e-2


def compute(run: Run, data: Data) -> Scores:
    """The arm "no relation" is the number 0."""
    y, y_test = known(data.train), known(data.test)
    if run.arm == "no relation":
        return {"correlation": 0.0}
    if run.arm == "raw pixels":
        return scores(pixels(data.train).flatten(1), y, pixels(data.test).flatten(1), y_test)
    x, x_test = pixels(data.train)[:PROBED], pixels(data.test)

    def probe(model: Trained) -> dict[str, float]:
        z, z_test = (model.call(_encode, part) for part in (x, x_test))
        return {"accuracy": linear_probe(z, y[:PROBED], z_test, y_test, strengths=(STRENGTH,)).accuracy}

    loss = VISRegLoss(lam=run.settings["lam"], slices=run.settings["slices"])
    learner, lines = followed(run, loss, data.train, watch=[AtCheckpoints(probe, count=POINTS)])
    found = scores(features(learner, data.train), y, features(learner, data.test), y_test)
    return found | {"correlation": correlation(*curves(lines))}


def curves(lines: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """The loss between two scores and the accuracy at the second, in the order of training."""
    losses, accuracies, since = list[float](), list[float](), list[float]()
    for line in lines:
        if "loss" in line:
            since.append(line["loss"])
        elif found := [value for name, value in line.items() if name.startswith("accuracy@")]:
            losses.append(mean(since))
            accuracies += found
            since = []
    return losses, accuracies


def _encode(method: Method, x: Any) -> Any:
    return method.encode(x)


RECIPE = Recipe(
    name="visreg_correlation",
    paper="VISReg",
    compute=compute,
    load=load_parts,
    data=DATA / "cifar10_12k.npz",
    settings={"epochs": 8, "batch": 256, "lr": 2e-3, "lam": 0.6, "slices": 512, "width": 32},
    arms={"VISReg": {}, "no relation": {}, "raw pixels": {}},
    base="no relation",
    measures=("linear", "correlation"),
    once=("raw pixels",),
    printed=(
        Printed(
            "the loss tells the accuracy", "correlation figure", "VISReg", "no relation", -0.996, measure="correlation"
        ),
    ),
    baseline="VISReg",
    reference="raw pixels",
    length="",
    share=8 * 10_000 / (100 * 1_281_167),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
