"""SER's equivariance score by layer and transform."""

from dataclasses import dataclass

import torch

from reglet.diagnostics import equivariance as score
from reglet.diagnostics import standard_transforms
from reglet.diagnostics.transforms import FLIP, ROTATIONS
from reglet.report.gather.layers import layers_of, patch_of
from reglet.report.gather.missing import Missing, attempt
from reglet.report.gather.source import Source

IMAGES = 64


@dataclass(frozen=True)
class Equivariance:
    """layers -> transforms -> centred cosine, and the same of tokens whose places were shuffled."""

    images: int
    layers: list[str]
    transforms: list[str]
    score: list[list[float]]
    floor: list[list[float]]


def equivariance(source: Source) -> Equivariance:
    index = torch.arange(min(IMAGES, len(source.test)))
    x = source.preprocess(source.test.batch(index))
    layers, every = layers_of(source.encoder), standard_transforms(multiple=patch_of(source.encoder) or 1)
    found = attempt(lambda: score(layers, x, transforms=every))
    if isinstance(found, Missing):  # an encoder for one size alone: what keeps the size
        found = score(layers, x, transforms=ROTATIONS | FLIP)
    names = list(next(iter(found.values())))
    return Equivariance(
        len(index),
        list(found),
        names,
        [[row[name].centred for name in names] for row in found.values()],
        [[row[name].centred_floor for name in names] for row in found.values()],
    )
