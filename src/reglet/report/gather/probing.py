"""What probes read from the features: the numbers of `reglet eval`, with the guess for each test image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from reglet.data import Images
from reglet.evaluate.labelled import labels_of
from reglet.evaluate.probing import DEFAULT, PROBES, ProbeData, by_domain

Json = dict[str, Any]


@dataclass(frozen=True)
class Probes:
    """scores: name -> numbers as in eval.json.  right: name -> whether the guess for each test image was."""

    train: str
    test: str
    images: tuple[int, int]
    scores: dict[str, Json]
    right: dict[str, Bool[Tensor, " n"]]
    fingerprint: str  # of the test images: only runs with the same can be compared image by image


def probe(
    x: Float[Tensor, "m d"],
    x_test: Float[Tensor, "n d"],
    train: Images,
    test: Images,
    *,
    names: Sequence[str] = DEFAULT,
) -> Probes:
    y, y_test = labels_of(train, test)
    task = ProbeData(x, y, x_test, y_test, x, x_test, 0)
    scores: dict[str, Json] = {}
    right: dict[str, Tensor] = {}
    for name in names:
        scores[name], guess = PROBES[name](task)
        if guess is None:
            continue
        right[name] = guess == y_test
        if test.domain is not None and test.domains is not None:
            scores[name]["by_domain"] = by_domain(guess, y_test, test.domain, test.domains)
    return Probes(train.name, test.name, (len(train), len(test)), scores, right, test.fingerprint)
