"""The small encoder that the pretraining recipes share: its data, its training, its scores.

16 px views cut out of 32 px images by SMI's CIFAR policy (whose blur, of a tenth of the view, is none at 16 px), a conv
net 64-128-256 (`width` 64) whose first stage halves the resolution, a projector 512-512-128, AdamW with warm-up and
cosine: about 1,500 images a second and core, each in two views.  Scores are those of the features before the projector.
"""

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from recipes.dose import Dose
from recipes.recipe import Scores
from reglet import views
from reglet.backbones import ConvNet, projector
from reglet.data import Images, Part, load
from reglet.diagnostics import effective_rank, eigenspectrum
from reglet.engine.feed import ImageFeed, Place, ViewPolicy
from reglet.engine.metrics import read_metrics
from reglet.engine.monitor import Monitor
from reglet.engine.settings import Settings
from reglet.export import preprocessing
from reglet.losses.base import OnViews
from reglet.method import Batch, Method
from reglet.methods import JointEmbedding
from reglet.probes import knn_probe, linear_probe
from reglet.runs import Run
from reglet.train import fit

SIZE = 16
STRENGTHS = (1e-3, 1e-2, 1e-1)  # of the linear probe, chosen on a part of the training images
VIEWS = "smi"  # the policy of runs whose settings have none


class Data(NamedTuple):
    train: Images
    test: Images


def load_parts(path: Path) -> Data:
    return Data(load(str(path), split="train"), load(str(path), split="test"))


def method(loss: OnViews, *, seed: int, width: int = 64) -> JointEmbedding:
    torch.manual_seed(seed)
    net = ConvNet(widths=(width, 2 * width, 4 * width), stride=2)
    return JointEmbedding(net, loss, projector=projector(net.dim, widths=(512, 512, 128)))


def pretrain(run: Run, loss: OnViews, images: Images, *, dose: Dose | None = None) -> JointEmbedding:
    learner = method(loss, seed=run.seed, width=run.settings.get("width", 64))
    policy = views.policy(run.settings.get("views", VIEWS), size=SIZE)
    quietly(learner, images, policy, run, dose=dose)
    return learner


def followed(
    run: Run, loss: OnViews, images: Images, *, watch: Sequence[Monitor] = ()
) -> tuple[JointEmbedding, list[dict[str, Any]]]:
    """Trained, and the lines of its metrics.jsonl: one for every step, and one for each score that was watched."""
    learner, lines = method(loss, seed=run.seed, width=run.settings.get("width", 64)), list[dict[str, Any]]()
    quietly(learner, images, views.policy(VIEWS, size=SIZE), run, watch=watch, lines=lines)
    return learner, lines


def quietly(
    learner: Method,
    images: Images,
    policy: ViewPolicy,
    run: Run,
    *,
    dose: Dose | None = None,
    watch: Sequence[Monitor] = (),
    lines: list[dict[str, Any]] | None = None,
) -> None:
    """Trained for the run's epochs or steps, with nothing shown and nothing left on disk.

    lines: takes those of metrics.jsonl, of every step.
    """
    batch = run.settings["batch"]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            out=f"{folder}/run",
            epochs=run.settings.get("epochs", 1),
            steps=run.settings.get("steps", 0),
            batch=batch,
            lr=run.settings["lr"],
            weight_decay=0.05,
            seed=run.seed,
            accelerator="cpu",
            save_every=10**9,
            log_every=10**9 if lines is None else 1,
        )
        feed = ImageFeed(images, policy, batch=batch, seed=run.seed)
        doses = [] if dose is None else [dose.begin(learner, first(feed))]
        result = fit(learner, feed, settings, watch=[*doses, *watch], shown=False)
        if lines is not None:
            lines += read_metrics(Path(settings.out) / "metrics.jsonl")
    if not result.finished:
        raise KeyboardInterrupt


def first(feed: ImageFeed) -> Batch:
    """The batch of the first step."""
    feed.open(Place(), steps=1)
    with closing(feed):
        return feed(0)


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


def scores(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, *, strengths: Sequence[float] = STRENGTHS) -> Scores:
    """In per cent."""
    linear = linear_probe(x, y, x_test, y_test, strengths=strengths)
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
