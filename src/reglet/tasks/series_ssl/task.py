"""A small 1-D network trained to embed two views of a series alike, and different series apart.

    visreg   lam (scale + shape + center) + (1 - lam) invariance
    smi      mutual information between samples
    none     invariance alone: nothing keeps the embeddings from being all the same

The score is what the network's features are worth without the projector: see `score`.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.backbones.projector import projector
from reglet.diagnostics.ranks import rankme
from reglet.engine.feed import TensorFeed
from reglet.engine.watch import AtEnd, Trained
from reglet.losses.base import OnViews
from reglet.losses.invariance import invariance
from reglet.losses.smi import SMILoss
from reglet.losses.visreg import VISRegLoss
from reglet.method import Batch
from reglet.methods import JointEmbedding
from reglet.networks.conv1d import ConvNet1d
from reglet.tasks.batches import digest, shuffled
from reglet.tasks.series_ssl.config import SeriesSSLConfig
from reglet.tasks.series_ssl.score import score
from reglet.tasks.series_ssl.series import Series, load
from reglet.tasks.task import Setup
from reglet.types import Terms

PROJECTOR = (128, 64)


class Invariance(OnViews):
    """The views together and nothing else: the arm without a regularizer."""

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        return {"invariance": invariance(z, n_global)}


class SeriesSSLTask:
    """embed series without labels: log-mel clips or windows of telemetry"""

    config = SeriesSSLConfig
    main = "score"

    def load(self, config: SeriesSSLConfig) -> Series:
        return load(config)

    def setup(self, config: SeriesSSLConfig, data: Series) -> Setup:
        backbone = ConvNet1d(channels=data.train.shape[1], **config.of("model"))
        head = projector(backbone.dim, widths=PROJECTOR)
        view, x = config.view(), data.train

        def batch(index: Tensor, generator: torch.Generator) -> Batch:
            draws = [view.draw(len(index), generator) for _ in range(2)]
            return Batch([view.apply(x[index], draw) for draw in draws], n_global=2)

        mark = digest(data.train, data.test, data.y_test)
        return Setup(
            JointEmbedding(backbone, loss_of(config), projector=head),
            TensorFeed(batch, shuffled(len(x), config), name=config.data or "sines", fingerprint=mark),
            [AtEnd(partial(scores, data=data, neighbours=config.neighbours))],
            sim_blocks=list(backbone.sim_blocks),
            channel_dim=1,
            trains=config.loss != "random",
        )


def loss_of(config: SeriesSSLConfig) -> OnViews:
    if config.loss == "visreg":
        return VISRegLoss(lam=config.lam, slices=config.slices, seed=config.seed, gather=True, shared_slices=True)
    return SMILoss(gather=True) if config.loss == "smi" else Invariance(gather=True)


def scores(model: Trained, *, data: Series, neighbours: int) -> dict[str, float]:
    """Of the network's features, without the projector."""
    train, test = (_features(model, x) for x in (data.train, data.test))
    return {"score": score(train, test, data, neighbours=neighbours), "rank": rankme(test)}


def _features(model: Trained, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n d"]:
    return torch.cat([model.call(lambda method, x: method.encode(x), part).cpu() for part in x.split(512)])
