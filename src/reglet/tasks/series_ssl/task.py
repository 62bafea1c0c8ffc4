"""A small 1-D network trained to embed two views of a series alike, and different series apart.

    visreg   lam (scale + shape + center) + (1 - lam) invariance
    smi      mutual information between samples
    none     invariance alone: nothing keeps the embeddings from being all the same

Or, with objective=predict, to embed frames so that the next one can be told from those before:

    visreg, sigreg, ...   error of the prediction + weight regularizer

The score is what the network's features are worth without the projector: see `score`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.projector import projector
from reglet.diagnostics.ranks import rankme
from reglet.engine.attachments import ONE_PLACE
from reglet.engine.build_predictive import default_weight, of_all_ranks
from reglet.engine.feed import TensorFeed
from reglet.engine.monitor import AtEnd, Trained
from reglet.losses.base import OnViews
from reglet.losses.invariance import invariance
from reglet.losses.smi import SMILoss
from reglet.losses.visreg import VISRegLoss
from reglet.method import Batch, innermost
from reglet.methods import JointEmbedding, NextEmbedding, Predictive
from reglet.networks.conv1d import ConvNet1d
from reglet.tasks.batches import digest, shuffled
from reglet.tasks.series_ssl.config import NO_REGULARIZER, SeriesSSLConfig
from reglet.tasks.series_ssl.score import area_of_machines, score
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
        head = projector(backbone.dim, widths=PROJECTOR)  # drawn in any case: both objectives start from one backbone
        predicts = config.objective == "predict"
        view, x = config.view(), data.train

        def batch(index: Tensor, generator: torch.Generator) -> Batch:
            if predicts:
                return Batch([x[index]])
            draws = [view.draw(len(index), generator) for _ in range(2)]
            return Batch([view.apply(x[index], draw) for draw in draws], n_global=2)

        mark = digest(data.train, data.test, data.y_test)
        return Setup(
            predictive(config, backbone) if predicts else JointEmbedding(backbone, loss_of(config), projector=head),
            TensorFeed(batch, shuffled(len(x), config), name=config.data or "sines", fingerprint=mark),
            [AtEnd(partial(scores, data=data, neighbours=config.neighbours, predicts=predicts))],
            sim_blocks=list(backbone.sim_blocks),
            channel_dim=1,
            trains=config.loss != "random",
        )


def loss_of(config: SeriesSSLConfig) -> OnViews:
    if config.loss == "visreg":
        return VISRegLoss(lam=config.lam, slices=config.slices, seed=config.seed, gather=True, shared_slices=True)
    return SMILoss(gather=True) if config.loss == "smi" else Invariance(gather=True)


class Nothing(OnViews):
    """No regularizer: the prediction alone, whose best embeddings are all the same."""

    least_views = 1

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        return {"nothing": z.new_zeros(())}


def predictive(config: SeriesSSLConfig, backbone: ConvNet1d) -> Predictive:
    """The error of the next frame, and the regularizer that `loss=` names."""
    kind: Callable[..., nn.Module] = Nothing if config.loss in NO_REGULARIZER else ONE_PLACE[config.loss]
    regularizer = kind(**of_all_ranks(kind, slices=config.slices, seed=config.seed))
    step = NextEmbedding(
        backbone.dim,
        frame=config.frame,
        width=64,
        depth=2,
        heads=4,
        dropout=config.dropout,
        projector=projector(backbone.dim, widths=PROJECTOR),
        embedding=PROJECTOR[-1],
        together=config.together,
    )
    weight = config.weight or default_weight(config.loss)
    return Predictive(backbone, regularizer, predictor=step, weight=weight, detach=config.detach)


def scores(model: Trained, *, data: Series, neighbours: int, predicts: bool) -> dict[str, float]:
    """Of the network's features, without the projector; of a network that predicts also how well its error tells
    anomalies."""
    train, test = (_of_parts(model, lambda method, x: method.encode(x), x) for x in (data.train, data.test))
    found = {"score": score(train, test, data, neighbours=neighbours), "rank": rankme(test)}
    if predicts and data.watched:
        wrong = _of_parts(model, _surprise, data.test)
        found["surprise"] = area_of_machines(wrong, data)
    return found


def _surprise(method: Any, x: Tensor) -> Tensor:
    inner = innermost(method)
    assert isinstance(inner, Predictive)
    return inner.surprise(Batch([x]))


def _of_parts(model: Trained, what: Callable[[Any, Tensor], Tensor], x: Float[Tensor, "n c t"]) -> Tensor:
    return torch.cat([model.call(what, part).cpu() for part in x.split(512)])
