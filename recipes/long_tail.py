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

Since     Rebuilt on the one loop and the one runner: the rate of every arm is searched, LatentDR at full and half rate,
          seeds 1 to 5, verdicts by rule.  Not run since.

Found     The paper's ordering does not hold here: all three pairs that it ranks are reversed, and LatentDR is below
          balanced softmax beyond the interval, also at the same half rate (post -3.6 +- 2.8, pre -4.6 +- 2.8, eq13
          -2.5 +- 1.4).  What it loses, it loses on the medium and rare classes.  Of the three placements of the norm
          eq13, the paper's for long tails, is the best.  Seven times as many steps as before (150) brought balanced
          softmax from 32.5 to 41.4 and LatentDR no nearer to it.
          Mind: this is a hundredth of the images of the paper's training, on ten classes.
          Rate grid and sizes were settled on single runs of seed 0 whose test accuracy was seen.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from recipes.dose import Dose
from recipes.encoder import known, load_parts
from recipes.generalize import BASE, PIXELS, Labelled, Network, against_base, probe_pixels, scores, searched, see, train
from recipes.recipe import DATA, Recipe, Scores, main
from reglet import views
from reglet.backbones import ConvNet
from reglet.data import Images
from reglet.data.splits import hold_out, long_tail
from reglet.export import preprocessing
from reglet.runs import Run
from reglet.tails import BalancedSoftmax

GROUPS = {"many": (101, 10**9), "medium": (20, 100), "few": (1, 19)}  # training images of a class
PAPER = {BASE: 51.1, "BatchFormer": 51.7, "LatentDR eq13": 52.7}  # all on top of balanced softmax
NAMES = (*PAPER, "ERM, half rate", "LatentDR eq13, half rate", "LatentDR SA", "LatentDR pre")
SIZE = 32


class Data(NamedTuple):
    train: Labelled  # pixels as they are read: they are normalised where they are augmented
    test: Labelled


def load(path: Path) -> Data:
    def part(images: Images) -> Labelled:
        x, y = images.batch(torch.arange(len(images))), known(images)
        return Labelled(x, y, torch.zeros_like(y), classes=10)

    train_images, test_images = load_parts(path)
    return Data(part(train_images), part(test_images))


def plain(data: Labelled) -> Labelled:
    """As it is tested."""
    return data._replace(x=preprocessing(SIZE)(data.x))


def augmented(x: Tensor, generator: torch.Generator) -> Tensor:
    policy = views.policy("supervised", size=SIZE)
    (seen,) = policy.apply(x, policy.draw(len(x), generator))
    return seen


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    body = ConvNet(widths=(32, 64, 128), stride=2)
    blocks = [f"stages.{i}" for i in range(3)]
    return Network(body, blocks=blocks, style=blocks[:2])


def compute(run: Run, data: Data) -> Scores:
    """Trained on a long tail of four fifths of the training images; validated on the other fifth, which is balanced."""
    rest, held = hold_out(len(data.train.y), 0.2, seed=run.seed)
    tail = rest[long_tail(data.train.y[rest], 100.0, seed=run.seed)]
    counts = data.train.y[tail].bincount(minlength=10)
    if run.arm == PIXELS:
        return probe_pixels(plain(data.train), tail, plain(data.test), torch.arange(len(data.test.y)))
    dose, criterion = Dose(), BalancedSoftmax(counts)
    trained = train(run, network(run.seed), data.train, tail, criterion=criterion, augment=augmented, dose=dose)
    test = see(trained, plain(data.test), torch.arange(len(data.test.y)))
    found = scores(test, [see(trained, plain(data.train), held)]) | dose.scores
    return found | by_size(test.hits, test.y, counts)


def by_size(hits: Tensor, y: Tensor, counts: Int64[Tensor, " k"]) -> dict[str, float]:
    """Accuracy in per cent on the classes with many, medium and few training images."""
    return {
        name: 100 * hits[(counts[y] >= low) & (counts[y] <= high)].double().mean().item()
        for name, (low, high) in GROUPS.items()
    }


RECIPE = Recipe(
    name="long_tail",
    paper="LatentDR",
    compute=compute,
    load=load,
    data=DATA / "cifar10_12k.npz",
    settings={"steps": 1000, "per_domain": 64, "lr": 3e-3},
    arms={name: {} for name in (*NAMES, PIXELS)},
    base=BASE,
    baseline=BASE,
    reference=PIXELS,
    measures=("test", *GROUPS, "validation", "alignment", "uniformity"),
    printed=against_base(PAPER, "table 5, CIFAR-100-LT"),
    share=1000 * 64 / (13_000 * 512),
    **searched(NAMES, (1e-3, 3e-3, 1e-2)),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
