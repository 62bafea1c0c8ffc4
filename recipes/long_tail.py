"""LatentDR and BatchFormer on top of balanced softmax: CIFAR-10 with an imbalance factor of 100.

Paper     Liu et al., LatentDR, table 5 (CIFAR-100-LT, ResNet-32, 13,000 steps of 512)
Command   python -m recipes.long_tail
Machine   one core, no GPU; 11.2 CPU minutes
Printed   many, medium, few, all: balanced softmax 67.9, 50.7, 32.2, 51.1; + BatchFormer 68.4, 49.3, 34.3, 51.7;
          + LatentDR 69.8, 51.3, 34.2, 52.7
Measured  2026-11-16, commit e059059, torch 2.13.0, three paired seeds (0 to 2).  Conv net 32-64-128, 1,000 steps of
          64 by Adam, crops and flips; 783 to 7 images of a class in training, which the seed draws.
          Rate 3e-3, of 1e-3 and 3e-3, by balanced validation images of plain balanced softmax at seed 100; LatentDR at
          half of it.  Accuracy on the 2,000 test images in %, mean and 95 % interval (Student's t over seeds),
          differences paired by seed; "post", "pre" and "eq13" are LatentDR's placements of the norm.

          arm                 paper  all            minus the first   many   medium  few    alignment  uniformity
          balanced softmax    51.1   41.4 +- 1.2                      45.7   39.9    35.3   0.47       -1.17
          ... at half rate           40.6 +- 1.3    -0.8 +- 2.1       45.4   38.4    34.5   0.46       -1.16
          + BatchFormer       51.7   40.0 +- 2.2    -1.4 +- 2.2       42.0   39.4    36.8   0.49       -1.21
          + LatentDR, post           37.0 +- 1.6    -4.4 +- 1.3       43.2   33.7    29.7   0.49       -1.23
          + LatentDR, pre            36.0 +- 1.6    -5.4 +- 2.0       46.4   33.5    18.6   0.51       -1.25
          + LatentDR, eq13    52.7   38.1 +- 1.2    -3.3 +- 2.4       43.8   35.8    29.8   0.55       -1.31

Found     The paper's ordering does not hold here: all three pairs that it ranks are reversed, and LatentDR is below
          balanced softmax beyond the interval, also at the same half rate (post -3.6 +- 2.8, pre -4.6 +- 2.8, eq13
          -2.5 +- 1.4).  What it loses, it loses on the medium and rare classes.  Of the three placements of the norm
          eq13, the paper's for long tails, is the best.  Seven times as many steps as before (150) brought balanced
          softmax from 32.5 to 41.4 and LatentDR no nearer to it.
          Mind: this is a hundredth of the images of the paper's training, on ten classes.
          Rate grid and sizes were settled on single runs of seed 0 whose test accuracy was seen.
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
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
