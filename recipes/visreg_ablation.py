"""VISReg without each of its parts, and with other weights of them, on a long-tailed training set.

Paper     Wu et al. 2026, knock-out, stop-gradient and weight ratio tables of the appendix
Command   python -m recipes.visreg_ablation
Machine   two cores, no GPU; 26 CPU minutes, so 13 minutes of both cores
Printed   Imagenette, ViT-S/8, linear probe: no scale 20.80, no shape 33.42, no centre 91.41, full 91.82.
          Without and with the stop-gradient: Imagenette 90.62, 90.89; ImageNet-LT 31.59, 31.94; Galaxy10 78.91,
          79.44. scale : shape : centre on ImageNet-LT: equal 31.94; twice the scale 30.16, shape 34.25, centre 31.60;
          four times the scale 27.35, shape 35.14, centre 29.48.
Measured  2026-11-16, commit 3d51f8e, torch 2.13.0.  A tail of imbalance 100 of 8,000 CIFAR-10 training images, 16 px
          views (see recipes/encoder.py), 25 epochs at batch 128; lam 0.3 and rate 2e-3 chosen for the full loss by
          nine trials of 12 epochs and a probe on the other 2,000 images.  Three seeds (0 to 2), accuracy on the 2,000
          test images in %: a linear probe fitted on the tail, 20-NN among the tail, and a linear probe fitted on the
          2,000 balanced images; the effective rank of the 256 features and the mean standard deviation of the 128
          embeddings on test images.  Means of the full loss, then paired differences from it with 95 % intervals
          (Student's t).

          arm                   linear           20-NN            balanced         rank   embedding's deviation
          full                  28.25            26.52            41.18            126    0.69
          no scale              -5.00 +- 8.21    -5.70 +- 1.83    -5.77 +- 3.15    86     0.001
          no shape              -0.55 +- 4.24    -2.20 +- 1.10    -1.38 +- 2.75    94     0.81
          no centre             +0.10 +- 0.66    +0.25 +- 0.76    +1.47 +- 0.44    125    0.69
          no detach             +0.32 +- 0.81    +0.32 +- 0.38    +1.00 +- 4.36    125    0.76
          no scale, no detach   -2.98 +- 1.94    -2.57 +- 1.48    -3.95 +- 1.95    149    0.04
          scale 2:1             -0.15 +- 5.73    -0.18 +- 1.49    -0.30 +- 2.00    123    0.78
          shape 2:1             +1.00 +- 2.38    +0.77 +- 2.23    +1.73 +- 2.70    134    0.51
          centre 2:1            -1.03 +- 2.79    +0.17 +- 1.04    +0.15 +- 3.48    125    0.63
          scale 4:1             -0.38 +- 4.99    -0.35 +- 0.86    +0.48 +- 4.79    117    0.84
          shape 4:1             -4.62 +- 5.03    -4.98 +- 2.45    -5.87 +- 6.08    92     0.003
          centre 4:1            -0.72 +- 2.58    +0.07 +- 1.76    +2.97 +- 3.15    123    0.54

Found     The scale term is what keeps the embedding alive, as printed: without it the deviation falls to 1e-3, and
          neighbours lose 5.7 points.  That is far less than the 71 points printed, on another data set and after 800
          epochs; why was not examined.  Without the shape term neighbours lose 2.2 points and the embedding's
          effective rank falls from 31 to 3.  The centre and the stop-gradient make no difference that three seeds
          resolve, but for +1.5 +- 0.4 without the centre by the balanced probe, one of 33 intervals; printed are
          losses of 0.4 and 0.3 to 0.5 without them.

          The weight ratio does not repeat: four times the shape, the paper's best on a long tail, collapses here in
          all three seeds (deviations 8e-3, 9e-4, 9e-5), as if there were no scale term.  Twice the shape is above the
          full loss on all three scores, within intervals that contain zero.  More weight on scale or on the centre
          changes no score by a difference that is resolved.

          Mind: lam = 0.3 was tuned for the full loss alone, and leaves more of the loss to the invariance, which
          contracts too.
Since     Now the paper's lam 0.6 and batch 256, at which an audit saw 4:1 alive in two of two runs, seeds 1 to 5, no
          search, the number of slices as well, and gates.  Not run since.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from recipes.dose import Dose
from recipes.encoder import Data, features, held_out, known, load_parts, pixels, pretrain, rank, scores
from recipes.recipe import DATA, Printed, Recipe, Scores, main
from reglet.data import Images
from reglet.data.splits import hold_out, long_tail
from reglet.losses import LeJEPALoss, SWDLoss, VISRegLoss
from reglet.losses.base import OnViews
from reglet.runs import Run

Changes = dict[str, Any]
STRENGTH = 1e-2  # of the probe.  Chosen on validation, 1e-1 and 1e-2 came by chance, 2 points apart
KNOCKED_OUT: dict[str, Changes] = {
    "full": {},
    "no scale": {"scale": 0.0},
    "no shape": {"shape": 0.0},
    "no centre": {"center": 0.0},
    "no detach": {"detach": False},
    "no scale, no detach": {"scale": 0.0, "detach": False},
}


def objective(run: Run) -> OnViews:
    s = run.settings
    if s["loss"] == "SIGReg":
        return LeJEPALoss(slices=s["slices"])
    if s["loss"] == "SWD":
        return SWDLoss(lam=s["lam"], slices=s["slices"])
    parts = {key: s[key] for key in ("scale", "shape", "center", "detach")}
    return VISRegLoss(lam=s["lam"], slices=s["slices"], **parts)


def tail_and_rest(images: Images, *, imbalance: float) -> tuple[Images, Images]:
    """A long tail of four fifths of the training images, and the last fifth, whose classes are nearly equal.

    The same images for every seed, so that seeds tell how training varies, not which images were rare.
    """
    fitted, held = hold_out(len(images), 0.2)
    return held_out(images, fitted[long_tail(known(images)[fitted], imbalance)], held)


def compute(run: Run, data: Data) -> Scores:
    strengths = (run.settings["strength"],)
    train, held = tail_and_rest(data.train, imbalance=run.settings["imbalance"])
    y, y_test = known(train), known(data.test)
    if run.arm == "raw pixels":
        x, x_held, x_test = (pixels(images).flatten(1) for images in (train, held, data.test))
        balanced = scores(x_held, known(held), x_test, y_test, strengths=strengths)["linear"]
        return {**scores(x, y, x_test, y_test, strengths=strengths), "balanced": balanced}
    dose = Dose()
    learner = pretrain(run, objective(run), train, dose=dose)
    x_test, z_test = features(learner, data.test), features(learner, data.test, embedding=True)
    return {
        **scores(features(learner, train), y, x_test, y_test, strengths=strengths),
        "balanced": scores(features(learner, held), known(held), x_test, y_test, strengths=strengths)["linear"],
        "rank": rank(x_test),
        "embedding_rank": rank(z_test),
        "embedding_std": float(z_test.std(0).mean()),
        **dose.scores,
    }


def recipe(name: str, arms: Mapping[str, Changes], printed: Sequence[Printed], **more: Any) -> Recipe[Data]:
    """What the recipes of VISReg's ablations share.  A rate and a length at which twice the epochs move the full
    loss by less than a point were looked for and not found: 2e-3 moved by 1.6 to 2.5 points for every doubling from 25
    to 200 epochs and 8e-3 by 0.95 from 50 (seed 0); 8e-3 by 1.11 from 70 and 1.6 from 140 (seeds 1 to 5, 1 to 3)."""
    return Recipe(
        name=name,
        paper="VISReg",
        compute=compute,
        load=load_parts,
        data=DATA / "cifar10_12k.npz",
        settings={"epochs": 70, "batch": 256, "lr": 8e-3, "lam": 0.6, "slices": 512, "width": 32, "imbalance": 100.0}
        | {"strength": STRENGTH}
        | {"loss": "VISReg", "scale": 1.0, "shape": 1.0, "center": 1.0, "detach": True},
        arms={**arms, "raw pixels": {}},
        measures=("linear", "knn", "balanced", "rank", "embedding_rank", "embedding_std"),
        once=("raw pixels",),
        printed=printed,
        reference="raw pixels",
        length="epochs",
        share=70 * 1_912 / (400 * 115_846),  # of ImageNet-LT's
        **more,
    )


KNOCK_OUTS = {"no scale": -71.02, "no shape": -58.4, "no centre": -0.41}
RECIPE = recipe(
    "visreg_ablation",
    KNOCKED_OUT,
    [
        *(Printed(arm, "knock-out table, Imagenette", arm, "full", effect) for arm, effect in KNOCK_OUTS.items()),
        Printed("no detach", "stop-gradient table, ImageNet-LT", "no detach", "full", -0.35),
    ],
    base="full",
    baseline="full",
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
