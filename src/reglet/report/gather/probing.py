"""What probes read from the features: the numbers of `reglet eval`, with the guess for each test image."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from reglet.data import Images
from reglet.evaluate.classes import ByClass, by_class, chance
from reglet.evaluate.labelled import labels_of
from reglet.evaluate.probing import DEFAULT, ProbeData, score
from reglet.evaluate.run import before_training, depends_on
from reglet.evaluate.untrained import RANDOM, Rows, untrained
from reglet.export import CARD
from reglet.report.gather.source import Source

Json = dict[str, Any]


@dataclass(frozen=True)
class Probes:
    """scores: name -> numbers as in eval.json.  right: name -> whether the guess for each test image was.

    before: the same probes on random weights and raw pixels, where these were asked for.
    """

    train: str
    test: str
    images: tuple[int, int]
    scores: dict[str, Json]
    right: dict[str, Bool[Tensor, " n"]]
    fingerprint: str  # of the test images: only runs with the same can be compared image by image
    before: Rows
    classes: ByClass | None
    chance: tuple[str, float]  # the commonest class, and the accuracy of always answering with it


def probe(
    x: Float[Tensor, "m d"],
    x_test: Float[Tensor, "n d"],
    train: Images,
    test: Images,
    *,
    names: Sequence[str] = DEFAULT,
    head: tuple[nn.Linear, list[str]] | None = None,
    before: Rows | None = None,
) -> Probes:
    y, y_test = labels_of(train, test)
    task = ProbeData(x, y, x_test, y_test, x, x_test, 0)
    classes = train.classes or []
    scores, guesses = score(task, names, test=test, names=classes, own=head)
    right = {name: guess == y_test for name, guess in guesses.items()}
    return Probes(
        train.name,
        test.name,
        (len(train), len(test)),
        scores,
        right,
        test.fingerprint,
        before or {},
        by_class(guesses, y_test, classes),
        chance(y, y_test, classes),
    )


def beside(run: Path, source: Source) -> Rows:
    """What the probes read from random weights and raw pixels; kept in the run, where it has an encoder."""
    if not source.network:
        return {}
    if (run / CARD).exists():
        card = json.loads((run / CARD).read_text())
        encoders, about = before_training(run, card), depends_on(run, card)
        return untrained(encoders, source.train, source.test, source.preprocess, about=about, folder=run)
    known = {} if source.untrained is None else {RANDOM: source.untrained}
    return untrained(known, source.train, source.test, source.preprocess, about={})
