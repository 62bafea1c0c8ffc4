"""LatentDR and its rivals on medical images without domains: PneumoniaMNIST and BreastMNIST.

Paper     Liu et al., LatentDR, table 3 (DermaMNIST, OrganSMNIST, OCTMNIST and FractureMNIST3D; ResNet-18, 100 epochs);
          the figures beside ours are its averages over these four
Command   python -m recipes.medical
Not run yet.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from recipes import arms
from recipes.arms import REPO, Result
from recipes.contest import Contest, hold
from recipes.generalize import Labelled, Network, Training, fit, scores, see
from reglet.backbones import ConvNet

SETS = ("pneumoniamnist", "breastmnist")
CONTEST = Contest(
    arms=(
        "ERM",
        "ERM, half rate",
        "Mixup",
        "Manifold Mixup",
        "BatchFormer",
        "LatentDR SA",
        "LatentDR Pool",
    ),
    cases=SETS,
    rates=(1e-3, 3e-3),
    printed={
        "ERM": 70.4,
        "Mixup": 69.5,
        "Manifold Mixup": 70.6,
        "BatchFormer": 72.3,
        "LatentDR SA": 73.2,
        "LatentDR Pool": 73.9,
    },
)


def load(folder: Path) -> dict[str, Labelled]:
    """28 x 28 pixels; `domain` is the official split: 0 for training, 1 for validation, 2 for test."""
    found = {}
    for name in SETS:
        with np.load(folder / f"{name}.npz") as archive:
            x, y, split = (torch.from_numpy(archive[key]) for key in ("images", "labels", "split"))
        found[name] = Labelled(x.permute(0, 3, 1, 2).float() / 127.5 - 1, y.long(), split.long(), classes=2)
    return found


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    body = ConvNet(widths=(32, 64, 128), stride=2, in_channels=1)
    blocks = [f"stages.{i}" for i in range(3)]
    return Network(body, body.dim, blocks=blocks, style=blocks[:2])


def compute(run: Training, sets: dict[str, Labelled]) -> Result:
    data = sets[run.case]
    train, validation, test = ((data.domain == i).nonzero()[:, 0] for i in range(3))
    net = network(run.seed)
    head = fit(run, net, data, train)
    return scores(see(net, head, data, test), [see(net, head, data, validation)])


def recipe(options: argparse.Namespace, console: Console) -> None:
    files = [options.data / f"{name}.npz" for name in SETS]
    missing = [path for path in files if not path.exists()]
    if missing:
        raise SystemExit(f"no data at {missing[0]}. Give --data the folder of {' and '.join(p.name for p in files)}")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    first = Training("", "", 0, 0.0, options.steps, options.batch, digest)
    hold(CONTEST, first, compute, load=load, options=options, console=console)


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("medical", "LatentDR and its rivals on two sets of MedMNIST", seeds=3)
    parser.set_defaults(data=REPO.parent / "shared/data")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=64)
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
