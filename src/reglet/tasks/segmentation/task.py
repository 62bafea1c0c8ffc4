"""Segmentation: a U-Net with one of four heads, trained on crops, tested on whole images."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from reglet.networks.segmentation import Segmenter, build
from reglet.tasks.config import AUTO
from reglet.tasks.fit import fit
from reglet.tasks.segmentation.config import SegmentationConfig
from reglet.tasks.segmentation.crops import draw
from reglet.tasks.segmentation.data import Pictures, prepare
from reglet.tasks.segmentation.loss import pixel_loss
from reglet.tasks.segmentation.made import curves
from reglet.tasks.segmentation.read import read
from reglet.tasks.segmentation.score import pixels, scores
from reglet.tasks.task import Outcome
from reglet.types import Scalar


class Segmentation:
    config = SegmentationConfig
    main = "dice"

    def load(self, config: SegmentationConfig) -> Pictures:
        raw = read(Path(config.data)) if config.data else curves()
        return prepare(raw, threshold=config.threshold, crop=config.crop, train_on=config.train_on)

    def train(self, config: SegmentationConfig, data: Pictures, *, seed: int, sim: bool) -> Outcome:
        network = _network(config, data, seed=seed)
        generator = torch.Generator().manual_seed(seed)

        def loss(index: Tensor) -> Scalar:
            some = [data.train[i] for i in index.tolist()]
            images, masks = [data.images[i] for i in some], [data.masks[i] for i in some]
            x, y = draw(images, masks, side=config.crop, generator=generator)
            return pixel_loss(network(_laid_out(pixels(x))), y, dice=config.dice)

        where: str | list[str] | None = network.sim_blocks if config.sim == AUTO else config.sim
        blocks = fit(
            network,
            loss,
            _batches(len(data.train), config, seed=seed),
            config=config,
            blocks=where if sim else None,
            example=torch.zeros(2, len(data.images[0]), config.crop, config.crop),
            seed=seed,
        )
        return Outcome(scores(network, data, side=config.crop), network, blocks)


def _network(config: SegmentationConfig, data: Pictures, *, seed: int) -> Segmenter:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build(
            config.model,
            classes=data.classes,
            in_channels=len(data.images[0]),
            width=config.width,
            stages=config.stages,
            decoder=config.decoder,
        )
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub


def _laid_out(x: Tensor) -> Tensor:
    """In the order that convolutions on a CPU are a quarter faster in."""
    return x.contiguous(memory_format=torch.channels_last)


def _batches(n: int, config: SegmentationConfig, *, seed: int) -> Iterator[Tensor]:
    """Which images are cropped; one may occur more than once, as there may be fewer of them than crops."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(config.steps):
        yield torch.randint(n, (config.batch,), generator=generator)


TASK = Segmentation()
