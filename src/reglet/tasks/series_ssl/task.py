"""A small 1-D network trained to embed two views of a series alike, and different series apart.

    visreg   lam (scale + shape + center) + (1 - lam) invariance
    smi      mutual information between samples
    none     invariance alone: nothing keeps the embeddings from being all the same

The score is what the network's features are worth without the projector: see `score`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.projector import projector
from reglet.diagnostics.rankme import rankme
from reglet.losses.invariance import to_center
from reglet.losses.smi import SMILoss
from reglet.losses.visreg import VISRegLoss
from reglet.networks.windows import ConvNet1d
from reglet.tasks.config import AUTO
from reglet.tasks.fit import batches, fit
from reglet.tasks.series_ssl.config import SeriesSSLConfig
from reglet.tasks.series_ssl.score import score
from reglet.tasks.series_ssl.series import Series, load
from reglet.tasks.task import Outcome
from reglet.types import Scalar

PROJECTOR = (128, 64)


class Embedder(nn.Module):
    """backbone: what is kept.  projector: what the loss sees."""

    def __init__(self, *, channels: int) -> None:
        super().__init__()
        self.backbone = ConvNet1d(channels=channels)
        self.projector = projector(self.backbone.dim, widths=PROJECTOR)

    def forward(self, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n d"]:
        z: Tensor = self.projector(self.backbone(x))
        return z


class Invariance(nn.Module):
    """The views together and nothing else: the arm without a regularizer."""

    def forward(self, z: Float[Tensor, "v n d"]) -> Scalar:
        return to_center(z, len(z))


class SeriesSSLTask:
    """embed series without labels: log-mel clips or windows of telemetry"""

    config = SeriesSSLConfig
    main = "score"

    def load(self, config: SeriesSSLConfig) -> Series:
        return load(config)

    def train(self, config: SeriesSSLConfig, data: Series, *, seed: int, sim: bool) -> Outcome:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = Embedder(channels=data.train.shape[1])
        blocks = () if config.loss == "random" else _fit(network, config, data.train, seed=seed, sim=sim)
        train, test = features(network.backbone, data.train), features(network.backbone, data.test)
        scores = {"score": score(train, test, data, neighbours=config.neighbours), "rank": rankme(test)}
        return Outcome(scores, network, blocks)


def _fit(network: Embedder, config: SeriesSSLConfig, x: Tensor, *, seed: int, sim: bool) -> tuple[str, ...]:
    view, objective = config.view(), loss_of(config, seed=seed)
    draws = torch.Generator().manual_seed(1_000_003 * (seed + 1))  # of the views; not the generator of the batches

    def loss(some: Tensor) -> Tensor:
        both = torch.cat([view.apply(x[some], view.draw(len(some), draws)) for _ in range(2)])
        value: Tensor = objective(network(both).unflatten(0, (2, len(some))))
        return value

    where = [f"backbone.{name}" for name in ConvNet1d.sim_blocks] if config.sim in ("", AUTO) else config.sim
    return fit(
        network,
        loss,
        batches(len(x), batch=config.batch, steps=config.steps, seed=seed),
        config=config,
        blocks=where if sim else None,
        example=x[: config.batch],
        channel_dim=1,
        seed=seed,
    )


def loss_of(config: SeriesSSLConfig, *, seed: int) -> nn.Module:
    if config.loss == "visreg":
        return VISRegLoss(lam=config.lam, slices=config.slices, seed=seed)
    return SMILoss() if config.loss == "smi" else Invariance()


@torch.no_grad()
def features(backbone: nn.Module, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n d"]:
    backbone.eval()
    return torch.cat([backbone(part) for part in x.split(512)])
