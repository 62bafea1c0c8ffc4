"""The small encoder that the pretraining recipes share: its data, its training, its scores.

16 px views cut out of 32 px images by SMI's CIFAR policy (whose blur, of a tenth of the view, is none at 16 px), a conv
net 64-128-256 whose first stage halves the resolution, a projector 512-512-128, AdamW with warm-up and cosine: about
1,500 images a second and core, each in two views.  Scores are those of the 256 features before the projector.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from recipes.arms import Result, Run
from reglet import views
from reglet.backbones import ConvNet, projector
from reglet.data import Images, Part, load
from reglet.diagnostics import effective_rank, eigenspectrum
from reglet.engine.feed import Policy
from reglet.engine.guard import NonFiniteError
from reglet.engine.settings import Settings
from reglet.export import preprocessing
from reglet.losses.base import OnViews
from reglet.method import Method
from reglet.methods import JointEmbedding
from reglet.probes import knn_probe, linear_probe
from reglet.train import fit

SIZE = 16
WIDTHS = (64, 128, 256)
STRENGTHS = (1e-3, 1e-2, 1e-1)  # of the linear probe, chosen on a part of the training images


class Data(NamedTuple):
    train: Images
    test: Images


@dataclass(frozen=True)
class Pretraining(Run):
    """Runs of one seed start from the same weights and see the same images in the same order and views."""

    loss: str
    weight: float  # the loss's main one
    lr: float
    seed: int
    epochs: int
    data: str  # digest of the images
    trial: bool = False  # trained on four fifths of the training images and scored on the last, to choose by
    batch: int = 128
    weight_decay: float = 0.05

    @property
    def name(self) -> str:
        kind = "trial, " if self.trial else ""
        return f"{self.loss} {self.weight:g}, {kind}lr {self.lr:g}, batch {self.batch}, seed {self.seed}"


def load_parts(path: Path) -> Data:
    return Data(load(str(path), split="0"), load(str(path), split="1"))


def method(loss: OnViews, *, seed: int) -> JointEmbedding:
    torch.manual_seed(seed)
    net = ConvNet(widths=WIDTHS, stride=2)
    return JointEmbedding(net, loss, projector=projector(net.dim, widths=(512, 512, 128)))


def pretrain(run: Pretraining, loss: OnViews, images: Images) -> JointEmbedding:
    learner = method(loss, seed=run.seed)
    quietly(learner, images, views.policy("smi", size=SIZE), run, weight_decay=run.weight_decay)
    return learner


class Budget(Protocol):
    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def seed(self) -> int: ...


def quietly(learner: Method, images: Images, policy: Policy, run: Budget, *, weight_decay: float = 0.05) -> None:
    """Trained, with nothing shown and nothing left on disk."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            out=f"{folder}/run",
            epochs=run.epochs,
            batch=run.batch,
            lr=run.lr,
            weight_decay=weight_decay,
            seed=run.seed,
            accelerator="cpu",
            save_every=10**9,
            log_every=10**9,
        )
        result = fit(learner, images, policy, settings, shown=False)
    if not result.finished:
        raise KeyboardInterrupt


def try_out(run: Pretraining, loss: OnViews, train: Images, held: Images) -> Result:
    """A trial: accuracy of a linear probe on the images held out, 0 where training diverged."""
    try:
        learner = pretrain(run, loss, train)
    except NonFiniteError as error:
        return {"linear": 0.0, "diverged": str(error)}
    x, x_held = features(learner, train), features(learner, held)
    return {"linear": 100 * linear_probe(x, known(train), x_held, known(held), strengths=STRENGTHS[1:2]).accuracy}


@torch.no_grad()
def features(learner: JointEmbedding, images: Images, *, embedding: bool = False) -> Float[Tensor, "n d"]:
    """What the encoder gives, or with `embedding` what the loss saw."""
    learner.eval()
    x = pixels(images)
    head = learner.projector if embedding else torch.nn.Identity()
    return torch.cat([head(learner.encode(part)) for part in x.split(500)])


def pixels(images: Images) -> Float[Tensor, "n 3 h w"]:
    return preprocessing(SIZE)(images.batch(torch.arange(len(images))))


def known(images: Images) -> Tensor:
    if images.labels is None:
        raise ValueError(f"{images.name} has no labels")
    return images.labels


def scores(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor) -> Result:
    """In per cent."""
    linear = linear_probe(x, y, x_test, y_test, strengths=STRENGTHS)
    return {
        "linear": 100 * linear.accuracy,
        "knn": 100 * knn_probe(x, y, x_test, y_test, k=min(20, len(x))),
        "strength": linear.strength,
    }


def rank(x: Float[Tensor, "n d"]) -> float:
    """Effective rank by the singular values of centred features.  (RankMe does not centre; after a ReLU its largest
    direction would be the mean.)"""
    return effective_rank(eigenspectrum(x).sqrt())


def held_out(images: Images, index: Tensor, rest: Tensor) -> tuple[Images, Images]:
    return Part(images, index, name="fitted"), Part(images, rest, name="held")


def best(trials: Sequence[Result]) -> dict[str, Result]:
    """For each loss the run of its best trial."""
    chosen: dict[str, Result] = {}
    for trial in trials:
        name = trial["run"]["loss"]
        if name not in chosen or trial["linear"] > chosen[name]["linear"]:
            chosen[name] = trial
    return {name: trial["run"] for name, trial in chosen.items()}
