"""LatentDR and BatchFormer on top of balanced softmax: CIFAR-10 with an imbalance factor of 100.

Paper     Liu et al., LatentDR, table 5 (CIFAR-100-LT, ResNet-32, 13,000 steps of 512)
Command   python -m recipes.long_tail
Not run yet.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int64
from rich.console import Console
from torch import Tensor

from recipes import arms
from recipes.arms import Result
from recipes.contest import Contest, hold
from recipes.generalize import Labelled, Network, Training, fit, scores, see
from recipes.sim_small_labels import augmented, normalised
from recipes.sim_small_labels import load as load_cifar
from reglet.backbones import ConvNet
from reglet.data.splits import hold_out, long_tail
from reglet.tails import BalancedSoftmax

GROUPS = {"many": (101, 10**9), "medium": (20, 100), "few": (1, 19)}  # training images of a class
CONTEST = Contest(
    arms=("ERM", "ERM, half rate", "BatchFormer", "LatentDR SA", "LatentDR pre", "LatentDR eq13"),
    cases=("balanced softmax",),
    rates=(1e-3, 3e-3),
    printed={"ERM": 51.1, "BatchFormer": 51.7, "LatentDR eq13": 52.7},
    measures=("test", *GROUPS, "alignment", "uniformity"),
)


class Data(NamedTuple):
    train: Labelled
    test: Labelled


def load(path: Path) -> Data:
    found = load_cifar(path)

    def part(x: Tensor, y: Tensor) -> Labelled:
        return Labelled(normalised(x), y, torch.zeros_like(y), classes=10)

    return Data(part(found.x, found.y), part(found.x_test, found.y_test))


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    body = ConvNet(widths=(32, 64, 128), stride=2)
    blocks = [f"stages.{i}" for i in range(3)]
    return Network(body, body.dim, blocks=blocks, style=blocks[:2])


def compute(run: Training, data: Data) -> Result:
    """Trained on a long tail of four fifths of the training images; validated on the other fifth, which is balanced."""
    rest, held = hold_out(len(data.train.y), 0.2, seed=run.seed)
    tail = rest[long_tail(data.train.y[rest], 100, seed=run.seed)]
    counts = data.train.y[tail].bincount(minlength=10)
    net = network(run.seed)
    head = fit(run, net, data.train, tail, criterion=BalancedSoftmax(counts), augment=augmented)
    test = see(net, head, data.test, torch.arange(len(data.test.y)))
    return {**scores(test, [see(net, head, data.train, held)]), **by_size(test.hits, test.y, counts)}


def by_size(hits: Tensor, y: Tensor, counts: Int64[Tensor, " k"]) -> dict[str, float]:
    """Accuracy in per cent on the classes with many, medium and few training images."""
    return {
        name: 100 * hits[(counts[y] >= low) & (counts[y] <= high)].double().mean().item()
        for name, (low, high) in GROUPS.items()
    }


def recipe(options: argparse.Namespace, console: Console) -> None:
    first = Training("", "", 0, 0.0, options.steps, options.batch, arms.require_data(options.data))
    hold(CONTEST, first, compute, load=load, options=options, console=console)


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("long_tail", "LatentDR and BatchFormer on a long tail", seeds=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=64)
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
