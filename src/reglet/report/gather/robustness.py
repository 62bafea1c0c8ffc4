"""What changes of the image do: SER's equivariance score by layer and transform, and accuracy under corruption.

Accuracy comes from robust.json if the run has one that is up to date, otherwise from a coarse measurement.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.data import Part
from reglet.diagnostics import equivariance as score
from reglet.diagnostics import standard_transforms
from reglet.diagnostics.robustness import robustness as measure
from reglet.diagnostics.transforms import FLIP, ROTATIONS
from reglet.evaluate.labelled import labels_of
from reglet.evaluate.robust import REPORT, STRENGTH
from reglet.export import ENCODER
from reglet.probes.linear import logistic_regression
from reglet.probes.standard import Standard
from reglet.report.gather.embedding import some
from reglet.report.gather.layers import layers_of, patch_of
from reglet.report.gather.missing import Missing, attempt
from reglet.report.gather.source import Source, encode

EQUIVARIANCE_IMAGES = 64
SEVERITIES = (1, 3, 5)


@dataclass(frozen=True)
class Equivariance:
    """layers -> transforms -> centred cosine, and the same of tokens whose places were shuffled."""

    images: int
    layers: list[str]
    transforms: list[str]
    score: list[list[float]]
    floor: list[list[float]]


def equivariance(source: Source) -> Equivariance:
    index = torch.arange(min(EQUIVARIANCE_IMAGES, len(source.test)))
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


@dataclass(frozen=True)
class CorruptionTable:
    """Accuracy under each corruption, by severity.  coarse: fewer images or severities than `reglet robust` takes."""

    images: int
    clean: float
    severities: list[int]
    accuracy: dict[str, list[float]]
    coarse: bool

    @property
    def mean(self) -> float:
        every = [a for row in self.accuracy.values() for a in row]
        return sum(every) / len(every)


def robustness(run: Path, source: Source, x: Float[Tensor, "m d"], *, images: int) -> CorruptionTable:
    """x: features of the training images, on which a linear classifier is fitted as `reglet robust` does."""
    stored, encoder = run / REPORT, run / ENCODER
    if stored.exists() and encoder.exists() and stored.stat().st_mtime >= encoder.stat().st_mtime:
        return read(json.loads(stored.read_text()))
    y, y_test = labels_of(source.train, source.test)
    standard = Standard(x)
    weight, bias = logistic_regression(x, y, strength=STRENGTH, standard=standard)

    def predict(pictures: Tensor) -> Tensor:
        pixels = (pictures * 255).round().to(torch.uint8)
        return F.linear(standard(encode(source.encoder, source.preprocess(pixels))).double(), weight, bias)

    few = some(source.test, images)
    pictures = Part(source.test, few, name="some").batch(torch.arange(len(few)))
    found = measure(predict, pictures, y_test[few], severities=SEVERITIES)
    rows = {name: list(row) for name, row in found.accuracy.items()}
    return CorruptionTable(len(few), found.clean, list(SEVERITIES), rows, coarse=True)


def read(stored: dict[str, object]) -> CorruptionTable:
    """What `reglet robust` wrote."""
    images, inner = stored["images"], stored["corruptions"]
    if not isinstance(images, int) or not isinstance(inner, dict):
        raise ValueError(f"{REPORT} is not as reglet robust writes it")
    return CorruptionTable(images, inner["clean"], list(inner["severities"]), inner["accuracy"], coarse=False)
