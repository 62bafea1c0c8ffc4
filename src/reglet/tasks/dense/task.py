"""Dense transfer: a linear map of a frozen network's tokens says which class each pixel is of.

The network runs once over the images.  What is trained is `head`: batch norm and a linear map of each token, logits
brought to the mask's size, cross-entropy there (VISReg's protocol on ADE20K).  With `layers` the outputs of several
blocks, each brought to the finest grid among them, are read side by side: several scales of a conv net.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from reglet import backbones
from reglet.attach import watch
from reglet.backbones.protocol import Tokens, map_tokens
from reglet.data.digits import masked_digits
from reglet.engine.feed import TensorFeed
from reglet.engine.monitor import AtEnd, Trained
from reglet.export import load_encoder, preprocessing
from reglet.method import Batch
from reglet.methods.token_maps import as_tokens
from reglet.probes.metrics import confusion, iou, mean_iou
from reglet.tasks.batches import digest, shuffled
from reglet.tasks.dense.config import DenseConfig
from reglet.tasks.predict import Predict
from reglet.tasks.segmentation.data import IGNORE, Raw, prepare
from reglet.tasks.segmentation.loss import pixel_loss
from reglet.tasks.segmentation.read import read
from reglet.tasks.task import Setup

TEST = 500  # of the digits


class Masked(NamedTuple):
    train: UInt8[Tensor, "m c s s"]
    train_masks: UInt8[Tensor, "m s s"]
    test: UInt8[Tensor, "n c s s"]
    test_masks: UInt8[Tensor, "n s s"]
    classes: int


class Head(nn.Module):
    """Maps (n, d, h, w) of a frozen network -> logits of every pixel."""

    def __init__(self, d: int, classes: int, size: int) -> None:
        super().__init__()
        self.norm, self.linear, self.size = nn.BatchNorm2d(d), nn.Conv2d(d, classes, 1), size

    def forward(self, maps: Float[Tensor, "n d h w"]) -> Float[Tensor, "n classes s s"]:
        logits = self.linear(self.norm(maps))
        return F.interpolate(logits, size=(self.size, self.size), mode="bilinear", align_corners=False)


class Dense:
    """say which class each pixel is of, from the tokens of a frozen network

    mean_iou: intersection over union on the test images, mean over the classes that occur; iou CLASS: of each class.
    """

    config = DenseConfig
    main = "mean_iou"

    def load(self, config: DenseConfig) -> Masked:
        if config.data:
            raw = read(Path(config.data))
        else:
            found = masked_digits()
            split = ["train"] * (len(found.masks) - TEST) + ["test"] * TEST
            raw = Raw(list(found.digits.images), list((found.masks > 0).to(torch.uint8)), split=split)
        data = prepare(raw, threshold=config.threshold, crop=1, train_on="")
        train = data.train[: config.images or None]
        parts = [_resized(data.images, data.masks, some, size=config.size) for some in (train, data.test)]
        return Masked(*parts[0], *parts[1], data.classes)

    def setup(self, config: DenseConfig, data: Masked) -> Setup:
        if config.encoder:
            encoder = load_encoder(Path(config.encoder))[0]
        else:
            encoder = backbones.build(config.model, size=config.size, in_channels=data.train.shape[1])
        layers = [name.strip() for name in config.layers.split(",") if name.strip()]
        x, x_test = (frozen_maps(encoder, part, layers, size=config.size) for part in (data.train, data.test))

        def batch(index: Tensor, _: torch.Generator) -> Batch:
            return Batch([x[index]], labels=data.train_masks[index])

        return Setup(
            Predict(Head(x.shape[1], data.classes, config.size), _loss, term="pixels"),
            TensorFeed(
                batch, shuffled(len(x), config), name=config.data or "digits", fingerprint=digest(x, data.train_masks)
            ),
            [AtEnd(lambda model: scores(model, x_test, data.test_masks, classes=data.classes))],
            inside="network",
            sim_blocks=["linear"],
        )


@torch.no_grad()
def frozen_maps(
    encoder: nn.Module, images: UInt8[Tensor, "n c s s"], layers: list[str], *, size: int
) -> Float[Tensor, "n d h w"]:
    """The tokens of a network as maps; of several layers, each at the finest grid among them."""
    prepare, encoder = preprocessing(size), encoder.eval()
    found = []
    for part in images.split(200):
        x = prepare(part)
        if not layers:
            if not isinstance(encoder, Tokens):
                raise TypeError(f"{type(encoder).__name__} has no tokens(x): name blocks by layers=")
            tokens, grid = encoder.tokens(x)
            found.append(tokens.transpose(1, 2).unflatten(2, grid))
            continue
        eye = watch(encoder, layers)
        try:
            with eye.open() as taps:
                encoder(x)
        finally:
            eye.remove()
        maps = [_as_map(y, image=(size, size), patch=getattr(encoder, "patch", 1)) for (y,) in taps.values()]
        finest = max(((y.shape[2], y.shape[3]) for y in maps), key=lambda grid: grid[0] * grid[1])
        found.append(torch.cat([F.interpolate(y, size=finest, mode="bilinear") for y in maps], dim=1))
    return torch.cat(found)


def _as_map(y: Tensor, *, image: tuple[int, int], patch: int) -> Float[Tensor, "n d h w"]:
    tokens, grid = map_tokens(y) if y.ndim == 4 else as_tokens(y, image=image, patch=patch)
    return tokens.transpose(1, 2).unflatten(2, grid)


def scores(model: Trained, maps: Tensor, masks: UInt8[Tensor, "n s s"], *, classes: int) -> dict[str, float]:
    predicted = torch.cat([model.call(lambda m, x: m.encode(x), part).argmax(1).cpu() for part in maps.split(100)])
    kept = masks != IGNORE
    table = confusion(predicted[kept], masks[kept].long(), classes=classes)
    return {"mean_iou": mean_iou(table)} | {f"iou {i}": float(value) for i, value in enumerate(iou(table))}


def _loss(logits: Tensor, batch: Batch) -> Tensor:
    assert batch.labels is not None
    return pixel_loss(logits, batch.labels, dice=0.0)


def _resized(
    images: Sequence[Tensor], masks: Sequence[Tensor], some: list[int], *, size: int
) -> tuple[UInt8[Tensor, "n c s s"], UInt8[Tensor, "n s s"]]:
    """Images bilinearly, masks by the nearest pixel: class numbers have no mean."""
    x = [F.interpolate(images[i][None].float(), size=(size, size), mode="bilinear")[0] for i in some]
    y = [F.interpolate(masks[i][None, None].float(), size=(size, size))[0, 0] for i in some]
    return torch.stack(x).round().to(torch.uint8), torch.stack(y).to(torch.uint8)
