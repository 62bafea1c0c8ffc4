"""Accuracy under corruption: robust.json where the run has one that is fresh, else a coarse look."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.data import Part
from reglet.diagnostics.robustness import robustness as measure
from reglet.evaluate.labelled import labels_of
from reglet.evaluate.robust import REPORT, STRENGTH
from reglet.export import ENCODER
from reglet.probes.linear import logistic_regression
from reglet.probes.standard import Standard
from reglet.report.gather.embedding import some
from reglet.report.gather.source import Source, encode

SEVERITIES = (1, 3, 5)


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
