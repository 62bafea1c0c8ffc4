"""LatentDR and its rivals on spoken digits, leave one speaker out: a shift of domain outside images.

Paper     Liu et al., LatentDR, table 1: no sound there; the figures beside ours are its averages over five image sets
Command   python -m recipes.spoken_digits
Not run yet.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch.nn.functional import avg_pool2d

from recipes import arms
from recipes.arms import REPO, Result
from recipes.contest import Contest, hold
from recipes.generalize import Labelled, Network, Training, fit, scores, see
from recipes.rotated_digits import PAPER
from reglet.backbones import ConvNet
from reglet.methods.domains import leave_out

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
CONTEST = Contest(
    arms=(
        "ERM",
        "ERM, half rate",
        "MixStyle",
        "BatchFormer",
        "LatentDR SA",
        "LatentDR Pool",
    ),
    cases=SPEAKERS,
    rates=(3e-3, 1e-2),
    printed=PAPER,
)


def load(path: Path) -> Labelled:
    """Log-mel spectrograms of 3,000 recordings, averaged to 20 bands x 40 frames of 20 ms."""
    with np.load(path) as archive:
        x, y, domain = (torch.from_numpy(archive[key]) for key in ("images", "labels", "domain"))
    pooled = avg_pool2d(x.permute(0, 3, 1, 2).float() / 127.5 - 1, 2)
    return Labelled(pooled, y.long(), domain.long(), classes=10)


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    body = ConvNet(widths=(16, 32, 64, 128), stride=2, in_channels=1)
    blocks = [f"stages.{i}" for i in range(4)]
    return Network(body, body.dim, blocks=blocks, style=blocks[:2])


def compute(run: Training, data: Labelled) -> Result:
    split = leave_out(data.domain, SPEAKERS.index(run.case), seed=run.seed)
    net = network(run.seed)
    head = fit(run, net, data, split.train)
    return scores(see(net, head, data, split.test), [see(net, head, data, i) for i in split.validation.values()])


def recipe(options: argparse.Namespace, console: Console) -> None:
    first = Training("", "", 0, 0.0, options.steps, options.per_domain, arms.require_data(options.data))
    hold(CONTEST, first, compute, load=load, options=options, console=console)


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("spoken_digits", "LatentDR and its rivals, leave one speaker out", seeds=3)
    parser.set_defaults(data=REPO.parent / "shared/data/fsdd_logmel.npz")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--per-domain", type=int, default=16)
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
