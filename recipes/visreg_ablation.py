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
          contracts too; at the paper's 0.6 (AGAIN) it is not yet run.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from recipes import arms
from recipes.arms import Result
from recipes.encoder import (
    Data,
    Pretraining,
    best,
    features,
    held_out,
    known,
    load_parts,
    pretrain,
    rank,
    scores,
    try_out,
)
from reglet.data import Images
from reglet.data.splits import hold_out, long_tail
from reglet.losses import VISRegLoss

LAMBDAS, RATES = (0.3, 0.6, 0.9), (5e-4, 2e-3, 8e-3)
MEASURES = ("linear", "knn", "balanced", "rank", "embedding_rank", "embedding_std")


@dataclass(frozen=True)
class Ablation(Pretraining):
    """`weight` is lam.  The weights of the terms sum to 3, as the paper's do."""

    scale: float = 1.0
    shape: float = 1.0
    center: float = 1.0
    detach: bool = True
    imbalance: float = 100.0

    @property
    def name(self) -> str:
        parts = f"scale {self.scale:g}, shape {self.shape:g}, centre {self.center:g}, detach {self.detach}"
        return f"{super().name}, {parts}"

    @property
    def objective(self) -> VISRegLoss:
        return VISRegLoss(
            lam=self.weight,
            slices=512,
            scale=self.scale,
            shape=self.shape,
            center=self.center,
            detach=self.detach,
        )


Changes = dict[str, float | bool]
ARMS: dict[str, Changes] = {
    "full": {},
    "no scale": {"scale": 0.0},
    "no shape": {"shape": 0.0},
    "no centre": {"center": 0.0},
    "no detach": {"detach": False},
    "no scale, no detach": {"scale": 0.0, "detach": False},
    "scale 2:1": {"scale": 1.5, "shape": 0.75, "center": 0.75},
    "shape 2:1": {"scale": 0.75, "shape": 1.5, "center": 0.75},
    "centre 2:1": {"scale": 0.75, "shape": 0.75, "center": 1.5},
    "scale 4:1": {"scale": 2.0, "shape": 0.5, "center": 0.5},
    "shape 4:1": {"scale": 0.5, "shape": 2.0, "center": 0.5},
    "centre 4:1": {"scale": 0.5, "shape": 0.5, "center": 2.0},
}

AGAIN = ("full", "no scale", "shape 2:1", "shape 4:1")  # at the paper's lam too, where another one was chosen
PAPER = 0.6


def tail_and_rest(images: Images, run: Ablation) -> tuple[Images, Images]:
    """A long tail of four fifths of the training images, and the last fifth, whose classes are nearly equal.

    The same images for every seed, so that seeds tell how training varies, not which images were rare.
    """
    fitted, held = hold_out(len(images), 0.2)
    return held_out(images, fitted[long_tail(known(images)[fitted], run.imbalance)], held)


def compute(run: Ablation, data: Data) -> Result:
    train, held = tail_and_rest(data.train, run)
    if run.trial:
        return try_out(run, run.objective, train, held)
    learner = pretrain(run, run.objective, train)
    x, x_test, z_test = (
        features(learner, train),
        features(learner, data.test),
        features(learner, data.test, embedding=True),
    )
    y, y_test = known(train), known(data.test)
    return {
        **scores(x, y, x_test, y_test),
        "balanced": scores(features(learner, held), known(held), x_test, y_test)["linear"],
        "rank": rank(x_test),
        "embedding_rank": rank(z_test),
        "embedding_std": float(z_test.std(0).mean()),
    }


def recipe(options: argparse.Namespace, console: Console) -> None:
    digest = arms.require_data(options.data)

    def run(todo: list[Ablation]) -> list[Result]:
        return arms.execute(todo, compute, load=load_parts, options=options, console=console, shown="linear")

    first = Ablation("VISReg", 0.0, 0.0, 100, options.trial_epochs, digest, trial=True, batch=options.batch)
    trials = run([replace(first, weight=lam, lr=lr) for lam in LAMBDAS for lr in RATES])
    chosen = best(trials)["VISReg"]
    final = replace(first, weight=chosen["weight"], lr=chosen["lr"], epochs=options.epochs, trial=False)
    cells = [(name, final.weight) for name in ARMS]
    cells += [(name, PAPER) for name in AGAIN if name in ARMS and final.weight != PAPER]
    results = run([changed(final, cell, seed) for seed in range(options.seeds) for cell in cells])
    rows = summarise(results, final, cells)
    arms.report(options.out, trials + results, rows, markdown(rows, trials, chosen))


def changed(final: Ablation, cell: tuple[str, float], seed: int) -> Ablation:
    name, lam = cell
    return replace(final, weight=lam, seed=seed, **ARMS[name])  # type: ignore[arg-type]


def summarise(results: Sequence[Result], final: Ablation, cells: Sequence[tuple[str, float]]) -> list[Result]:
    """A row for each arm: the means of its scores, and their differences from the full loss, seed by seed."""
    by_key = {Ablation(**r["run"]).key: r for r in results}
    seeds = sorted({r["run"]["seed"] for r in results})

    def found(cell: tuple[str, float], measure: str) -> dict[int, float]:
        return {seed: by_key[changed(final, cell, seed).key][measure] for seed in seeds}

    rows = []
    for name, lam in cells:
        row: Result = {"arm": name, "lam": lam, "seeds": len(seeds)}
        for measure in MEASURES:
            mine, full = found((name, lam), measure), found(("full", lam), measure)
            row[measure] = {"mean": arms.interval(list(mine.values())), "difference": arms.paired(mine, full)}
        rows.append(row)
    return rows


def markdown(rows: Sequence[Result], trials: Sequence[Result], chosen: Result) -> str:
    lines = ["| arm | lam | " + " | ".join(MEASURES) + " |", "|" + "---|" * (2 + len(MEASURES))]
    for row in rows:
        cells = [row["arm"], f"{row['lam']:g}"]
        for measure in MEASURES:
            digits = 4 if measure == "embedding_std" else 2
            cell = f"{row[measure]['mean'][0]:.{digits}f}"
            difference = (
                "" if row["arm"] == "full" else " ({:+.{d}f} ± {:.{d}f})".format(*row[measure]["difference"], d=digits)
            )
            cells.append(cell + difference)
        lines.append("| " + " | ".join(cells) + " |")
    tried = ", ".join(f"{t['run']['weight']:g}/{t['run']['lr']:g}: {t['linear']:.2f}" for t in trials)
    return "\n".join(
        [*lines, "", f"chosen lam {chosen['weight']:g}, lr {chosen['lr']:g} of (lam/lr: held-out) {tried}"]
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("visreg_ablation", "VISReg's parts on a long tail of CIFAR-10", seeds=3)
    parser.add_argument("--epochs", type=int, default=25, help="of the long-tailed images")
    parser.add_argument("--trial-epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=128)
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
