"""VISReg without each of its parts, and with other weights of them, on a long-tailed training set.

Paper     Wu et al. 2026, knock-out, stop-gradient and weight ratio tables of the appendix
Command   python -m recipes.visreg_ablation
Machine   not yet run
Printed   Imagenette, ViT-S/8, linear probe: no scale 20.80, no shape 33.42, no centre 91.41, full 91.82.
          Without and with the stop-gradient: Imagenette 90.62, 90.89; ImageNet-LT 31.59, 31.94; Galaxy10 78.91, 79.44.
          scale : shape : centre on ImageNet-LT: equal 31.94; twice the scale 30.16, shape 34.25, centre 31.60;
          four times the scale 27.35, shape 35.14, centre 29.48.
Measured  not yet run
Found     not yet run
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

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
    results = run(
        [replace(final, seed=seed, **changes) for seed in range(options.seeds) for changes in ARMS.values()]  # type: ignore[arg-type]
    )
    rows = summarise(results, final)
    arms.report(options.out, trials + results, rows, markdown(rows, trials, chosen))


def summarise(results: Sequence[Result], final: Ablation) -> list[Result]:
    """A row for each arm: the means of its scores, and their differences from the full loss, seed by seed."""
    of_arm: dict[str, dict[int, Result]] = {}
    for name, changes in ARMS.items():
        runs = {r["run"]["seed"]: r for r in results}
        wanted = [asdict(replace(final, seed=seed, **changes)) for seed in runs]  # type: ignore[arg-type]
        of_arm[name] = {r["run"]["seed"]: r for r in results if r["run"] in wanted}
    rows = []
    for name, found in of_arm.items():
        row: Result = {"arm": name, "seeds": len(found)}
        for measure in MEASURES:
            mine, full = ({seed: r[measure] for seed, r in which.items()} for which in (found, of_arm["full"]))
            row[measure] = {"mean": arms.interval(list(mine.values())), "difference": arms.paired(mine, full)}
        rows.append(row)
    return rows


def markdown(rows: Sequence[Result], trials: Sequence[Result], chosen: Result) -> str:
    lines = ["| arm | " + " | ".join(MEASURES) + " |", "|" + "---|" * (1 + len(MEASURES))]
    for row in rows:
        cells = [row["arm"]]
        for measure in MEASURES:
            cell = f"{row[measure]['mean'][0]:.2f}"
            difference = "" if row["arm"] == "full" else " ({:+.2f} ± {:.2f})".format(*row[measure]["difference"])
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
