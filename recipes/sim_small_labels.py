"""rhoSIM on few labels: does self identity mapping help a small ResNet on 3,000 labels of CIFAR-10?

Paper     Cai et al., Self Identity Mapping, table 2 (all 50,000 labels, 200 epochs)
Command   python -m recipes.sim_small_labels
Printed   CIFAR-10, without -> with SIM: ResNet-18 94.65 -> 94.94; ResNet-50 95.26 -> 95.39, with label smoothing 95.21
          -> 95.35, with Mixup 96.25 -> 96.48, with CutMix 96.60 -> 96.69
Design    ResNet-8 on 2 x 2 patches, 2,000 steps of 50, tested on the 9,000 images whose labels are not used.  SIM on
          the first block of each stage, in two doses above the authors', which has 0.4 % of this network's gradient:
          with its sum over 128 features, and at ten times the weight.  Compared with what is printed for ResNet-18,
          which has such blocks.  Smoothing, Mixup and CutMix are left out: their printed gains of 0.09 to 0.23 take
          hundreds of seeds.
Measured  not yet, in this design.  At seed 1, 1,000 steps had 52.4, SIM with its sum 51.3, at ten times the weight
          49.8, raw pixels 36.3; 2,000 steps had 57.8, so 1,000 were too few.  An older design is in docs/sim.md.
"""

import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from recipes.dose import Dose
from recipes.encoder import first, known
from recipes.recipe import DATA, Printed, Recipe, Scores, main
from reglet import views
from reglet.backbones.resnet import resnet8
from reglet.blocks import SIM
from reglet.data import Images, Part, load
from reglet.data.splits import some_labels
from reglet.engine.feed import ImageFeed
from reglet.engine.metrics import read_metrics
from reglet.engine.run_folder import METRICS
from reglet.engine.settings import Settings
from reglet.export import preprocessing
from reglet.method import Method
from reglet.methods import Supervised
from reglet.methods.regularized import Regularized
from reglet.probes import linear_probe
from reglet.runs import Run
from reglet.train import fit

SIZE = 32
BLOCKS = ("net.layer1.0", "net.layer2.0", "net.layer3.0")
BASE = "base"
SIMS: dict[str, dict[str, Any]] = {
    "SIM, sum of 128": {"weight": 5e-3, "reduction": "sum", "dim": 128},
    "SIM, weight 0.05": {"weight": 5e-2},
}
PRINTED = 0.29  # of ResNet-18


class Patches(nn.Module):
    """ResNet-8 on 2 x 2 patches: a quarter of the work, so that few labels can be seen often enough to overfit."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.net = nn.PixelUnshuffle(2), resnet8(in_channels=12)
        self.dim = self.net.dim

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        y: Tensor = self.net(self.patches(x))
        return y


def load_all(path: Path) -> Images:
    """Both parts: what has no label in a run tests it."""
    return load(str(path))


def method(run: Run, example: Float[Tensor, "n 3 h w"]) -> tuple[Method, Supervised]:
    """What is trained, and the classifier in it.  The network is made first: arms of a seed start alike."""
    s = run.settings
    torch.manual_seed(run.seed)
    classifier = Supervised(Patches(), classes=10)
    if not s["weight"]:
        return classifier, classifier
    sim = SIM(seed=run.seed, reduction=s["reduction"], dim=s["dim"] or "sqrt")
    where = [f"backbone.{block}" for block in BLOCKS]
    return Regularized(classifier, where, sim, weight=s["weight"], example=example), classifier


def compute(run: Run, images: Images) -> Scores:
    s, labels = run.settings, known(images)
    picked = some_labels(labels, s["labels"], seed=run.seed)
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[picked] = False
    unused = rest.nonzero()[:, 0]
    if run.arm == "raw pixels":
        x, x_test = (pixels(images, some).flatten(1) for some in (picked, unused))
        return {"test": 100 * linear_probe(x, labels[picked], x_test, labels[unused]).accuracy}
    train = Part(images, picked, name="labelled")
    learner, classifier = method(run, pixels(images, picked[:4]))
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            out=f"{folder}/run",
            steps=s["steps"],
            batch=s["batch"],
            optimizer="sgd",
            lr=s["lr"],
            weight_decay=1e-4,
            warmup=0.0,
            seed=run.seed,
            accelerator="cpu",
            save_every=10**9,
            log_every=1,
        )
        feed = ImageFeed(train, views.policy("supervised", size=SIZE), batch=s["batch"], seed=run.seed)
        dose = Dose().begin(learner, first(feed))
        finished = fit(learner, feed, settings, watch=[dose], shown=False).finished
        rows = read_metrics(Path(settings.out) / METRICS)
    if not finished:
        raise KeyboardInterrupt
    if isinstance(learner, Regularized):
        learner.remove()
    classifier.eval()
    held = pixels(images, unused[:1000])
    return {
        "test": accuracy(classifier, images, unused),
        **dose.scores,
        **roughness([row["grad_norm"] for row in rows if "grad_norm" in row]),
        **{f"R2 {block}": retained(classifier.backbone, block, held) for block in BLOCKS},
    }


def pixels(images: Images, index: Tensor) -> Float[Tensor, "n 3 h w"]:
    return preprocessing(SIZE)(images.batch(index))


@torch.no_grad()
def accuracy(classifier: Supervised, images: Images, index: Tensor) -> float:
    """In per cent."""
    guesses = torch.cat([classifier.logits(pixels(images, some)).argmax(1) for some in index.split(500)])
    return 100 * (guesses == known(images)[index]).double().mean().item()


def roughness(norms: Sequence[float], *, decay: float = 0.98, factor: float = 3.0) -> dict[str, float]:
    """How a gradient norm jumps about its moving average up to the step before.

    spikes: the fraction of steps above `factor` times it; jitter: the standard deviation of the log of their ratio.
    """
    average, ratios = norms[0], []
    for norm in norms[1:]:
        ratios.append(norm / average)
        average = decay * average + (1 - decay) * norm
    return {
        "spikes": mean(float(r > factor) for r in ratios),
        "jitter": stdev(math.log(r) for r in ratios),
        "largest_jump": max(ratios),
        "gradient": mean(norms),
    }


@torch.no_grad()
def retained(model: nn.Module, name: str, x: Float[Tensor, "n 3 h w"], *, ridge: float = 1e-3) -> float:
    """R^2 with which a ridge regression reads a block's input tokens out of its output tokens, on images that are new
    to network and regression.

    A strided block's output token is held against the mean of its window, as SIM does.  R^2 is one minus the summed
    squared error over the summed variance of all input channels.
    """
    seen: list[tuple[Tensor, Tensor]] = []
    handle = model.get_submodule(name).register_forward_hook(lambda _m, inputs, out: seen.append((inputs[0], out)))
    picks = torch.Generator().manual_seed(0)
    pairs = []
    for part in x[:1000].split(200):
        model(part)
        a, b = seen.pop()
        where = torch.randperm(b.shape[2] * b.shape[3], generator=picks)[:16]
        a = nn.functional.adaptive_avg_pool2d(a, (b.shape[2], b.shape[3]))
        pairs.append([t.flatten(2)[:, :, where].transpose(1, 2).double() for t in (a, b)])
    handle.remove()
    a, b = (torch.cat(side) for side in zip(*pairs, strict=True))
    half = len(a) // 2
    (a_fit, a_new), (b_fit, b_new) = ([t[:half].flatten(0, 1), t[half:].flatten(0, 1)] for t in (a, b))
    mu, nu, sigma = a_fit.mean(0), b_fit.mean(0), b_fit.std(0) + 1e-12
    u = (b_fit - nu) / sigma
    gram = u.T @ u / len(u) + ridge * torch.eye(u.shape[1], dtype=u.dtype)
    w = torch.linalg.solve(gram, u.T @ (a_fit - mu) / len(u))
    error = a_new - mu - (b_new - nu) / sigma @ w
    return 1 - (error.square().sum() / (a_new - a_new.mean(0)).square().sum()).item()


RECIPE = Recipe(
    name="sim_small_labels",
    paper="rhoSIM",
    compute=compute,
    load=load_all,
    data=DATA / "cifar10_12k.npz",
    settings={"labels": 3000, "steps": 2000, "batch": 50, "lr": 0.1} | {"weight": 0.0, "reduction": "mean", "dim": 0},
    arms={BASE: {}, **SIMS, "raw pixels": {}},
    base=BASE,
    measures=("test", "spikes", "jitter", *(f"R2 {block}" for block in BLOCKS)),
    once=("raw pixels",),
    seeds=5,
    printed=tuple(Printed(f"{sim} helps", "table 2", sim, BASE, PRINTED) for sim in SIMS),
    baseline=BASE,
    reference="raw pixels",
    share=2000 * 50 / (200 * 50_000),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
