"""Weak-SIGReg on hidden states: does it train a ViT that does not train by itself?

Paper     Akbar, Weak-SIGReg, arXiv:2603.05924; kreasof-ai/sigreg, cifar100/README.md and its notebooks
Command   python -m recipes.weak_sigreg
Machine   two cores, no GPU; about 10 CPU minutes
Printed   CIFAR-100, a ViT of 6 blocks and 256 features, AdamW at 1e-3, CutMix and MixUp, 400 epochs: 20.73 without,
          72.02 with (table of cifar100/README.md)

The authors' network has LayerNorm; their abstract says "without architectural hacks".  So there are two networks here:
one with LayerNorm, as theirs, and one in which every LayerNorm is the identity.  As in the notebooks the loss is on the
mean over the tokens of an image, after every block, with 0.1 of the objective and a sketch of 64; and every batch is
mixed.  Differences: CIFAR-10, 10,000 images, 96 features, patches of 8, learned positions in place of rotary ones,
crops and flips without RandAugment, MixUp only, fewer steps.

The claims are gated like all others: a network below raw pixels has not trained long enough to show 51 points.

Measured  18 November 2026, five seeds of 250 steps: test accuracy with LayerNorm 31.28 without and 32.00 with (+0.72,
          -0.58 to +2.02), no norm 28.05 and 27.08 (-0.97, -2.60 to +0.66).  A linear classifier of raw pixels has
          36.10, so these networks are far from trained.  At this length there is no gain of 51 points.  Whether one
          comes after 400 epochs, which show 600 times as many images, this cannot tell.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from recipes.dose import Dose
from recipes.encoder import first, known
from recipes.recipe import DATA, Printed, Recipe, Scores, main
from reglet import views
from reglet.backbones.vit import ViT
from reglet.data import Images, Part, load
from reglet.engine.feed import ImageFeed
from reglet.engine.settings import Settings
from reglet.export import preprocessing
from reglet.losses import WeakSIGReg
from reglet.method import Method
from reglet.methods import Supervised
from reglet.methods.mixed import Mixed
from reglet.methods.regularized import Regularized
from reglet.probes import linear_probe
from reglet.runs import Run
from reglet.train import fit

SIZE, TEST = 32, 2000
ALPHA = 0.1  # of the objective: (1 - alpha) cross-entropy + alpha mean over blocks


def network(*, norm: bool, dim: int, depth: int) -> ViT:
    """norm=False: every LayerNorm is the identity."""
    net = ViT(dim=dim, depth=depth, heads=4, mlp_ratio=2.0, size=SIZE, patch=8, cls_layer=None)
    if not norm:
        for module in list(net.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.LayerNorm):
                    setattr(module, name, nn.Identity())
    return net


def method(run: Run) -> tuple[Method, Supervised]:
    """What is trained, and the classifier in it.  Arms of a seed start alike."""
    s = run.settings
    torch.manual_seed(run.seed)
    classifier = Supervised(network(norm=s["norm"], dim=s["dim"], depth=s["depth"]), classes=10)
    learner: Method = Mixed(classifier, "mixup", classes=10, alpha=0.8)
    if s["weight"]:
        loss = WeakSIGReg(slices=64, seed=run.seed)
        learner = Regularized(learner, "backbone.blocks.*", loss, weight=s["weight"], on="pooled")
    return learner, classifier


def compute(run: Run, images: Images) -> Scores:
    s, labels = run.settings, known(images)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(run.seed))
    test, train = order[:TEST], order[TEST:]
    if run.arm == "raw pixels":
        x, x_test = (pixels(images, some).flatten(1) for some in (train[:3000], test))
        return {"test": 100 * linear_probe(x, labels[train[:3000]], x_test, labels[test]).accuracy}
    learner, classifier = method(run)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            out=f"{folder}/run",
            steps=s["steps"],
            batch=s["batch"],
            optimizer="adamw",
            lr=s["lr"],
            weight_decay=5e-4,
            warmup=0.0,
            clip=0.0,
            seed=run.seed,
            accelerator="cpu",
            save_every=10**9,
            log_every=10**9,
        )
        policy = views.policy("supervised", size=SIZE)
        feed = ImageFeed(Part(images, train, name="train"), policy, batch=s["batch"], seed=run.seed)
        dose = Dose().begin(learner, first(feed))
        finished = fit(learner, feed, settings, watch=[dose], shown=False).finished
    if not finished:
        raise KeyboardInterrupt
    if isinstance(learner, Regularized):
        learner.remove()
    classifier.eval()
    return {
        "test": accuracy(classifier, images, test),
        "train": accuracy(classifier, images, train[:TEST]),
    } | dose.scores


def pixels(images: Images, index: Tensor) -> Float[Tensor, "n 3 h w"]:
    return preprocessing(SIZE)(images.batch(index))


@torch.no_grad()
def accuracy(classifier: Supervised, images: Images, index: Tensor) -> float:
    """In per cent."""
    guesses = torch.cat([classifier.logits(pixels(images, some)).argmax(1) for some in index.split(500)])
    return 100 * (guesses == known(images)[index]).double().mean().item()


def load_all(path: Path) -> Images:
    """Both parts: each seed has its own split."""
    return load(str(path))


WITH = {"weight": ALPHA / (1 - ALPHA)}
ARMS: dict[str, dict[str, Any]] = {
    "LayerNorm": {},
    "LayerNorm + Weak-SIGReg": WITH,
    "no norm": {"norm": False},
    "no norm + Weak-SIGReg": {"norm": False, **WITH},
    "raw pixels": {},
}
RECIPE = Recipe(
    name="weak_sigreg",
    paper="Weak-SIGReg",
    compute=compute,
    load=load_all,
    data=DATA / "cifar10_12k.npz",
    settings={"steps": 250, "batch": 128, "lr": 1e-3, "dim": 96, "depth": 6, "norm": True, "weight": 0.0},
    arms=ARMS,
    base={arm: arm.split(" + ")[0] for arm in ARMS if " + " in arm},
    measures=("test", "train"),
    once=("raw pixels",),
    seeds=5,
    printed=tuple(
        Printed(f"Weak-SIGReg helps a ViT, {base}", "CIFAR-100 table", f"{base} + Weak-SIGReg", base, 51.29)
        for base in ("LayerNorm", "no norm")
    ),
    reference="raw pixels",
    share=250 * 128 / (400 * 50_000),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
