"""Segmentation: a U-Net with one of four heads, trained on crops, tested on whole images."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from reglet.engine.feed import TensorFeed
from reglet.engine.monitor import AtEnd, Trained
from reglet.engine.order import WithReplacement
from reglet.method import Batch
from reglet.networks.segmentation import build
from reglet.tasks.batches import digest
from reglet.tasks.predict import Predict
from reglet.tasks.segmentation.config import SegmentationConfig
from reglet.tasks.segmentation.crops import draw
from reglet.tasks.segmentation.data import MaskedImages, curves, prepare
from reglet.tasks.segmentation.loss import pixel_loss
from reglet.tasks.segmentation.read import read
from reglet.tasks.segmentation.score import pixels, scores
from reglet.tasks.task import Setup


class Segmentation:
    """name the class of every pixel of an image

    dice, iou and auroc on the test images.
    """

    config = SegmentationConfig
    main = "dice"

    def load(self, config: SegmentationConfig) -> MaskedImages:
        raw = read(Path(config.data)) if config.data else curves()
        return prepare(raw, threshold=config.threshold, crop=config.crop, train_on=config.train_on)

    def setup(self, config: SegmentationConfig, data: MaskedImages) -> Setup:
        network = build(
            config.model,
            classes=data.classes,
            in_channels=len(data.images[0]),
            width=config.width,
            stages=config.stages,
            decoder=config.decoder,
        )

        def batch(index: Tensor, generator: torch.Generator) -> Batch:
            some = [data.train[i] for i in index.tolist()]
            images, masks = [data.images[i] for i in some], [data.masks[i] for i in some]
            x, y = draw(images, masks, side=config.crop, generator=generator)
            layout = torch.channels_last if config.channels_last else torch.contiguous_format
            return Batch([pixels(x).contiguous(memory_format=layout)], labels=y)

        # An image may occur more than once in a batch, as there may be fewer images than crops.
        order = WithReplacement(n=len(data.train), batch=config.batch, seed=config.seed)
        return Setup(
            Predict(network, partial(_loss, dice=config.dice), term="pixels"),
            TensorFeed(batch, order, name=config.data or "curves", fingerprint=digest(data.images, data.masks)),
            [AtEnd(lambda model: scores(_logits_of(model), data, side=config.crop))],
            inside="network",
            sim_blocks=list(network.sim_blocks),
        )


def _loss(logits: Tensor, batch: Batch, *, dice: float) -> Tensor:
    assert batch.labels is not None
    return pixel_loss(logits, batch.labels, dice=dice)


def _logits_of(model: Trained) -> Callable[[Tensor], Tensor]:
    return lambda x: model.call(lambda method, x: method.encode(x), x).cpu()


TASK = Segmentation()
