"""The accuracy of frozen features with few labels: a number of each class, drawn several times."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from reglet import check
from reglet.precision import in_float64
from reglet.probes.check import check_classes, check_features
from reglet.probes.linear import linear_probe

Score = Callable[[Tensor, Tensor, Tensor, Tensor], float]


class FewLabelScore(NamedTuple):
    """Mean and deviation over draws of the labels, and each of them.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> few_label_probe(x, y, x, y, per_class=5, draws=3).scores
    [1.0, 1.0, 1.0]
    """

    mean: float
    std: float  # over draws, unbiased; 0 for a single one
    scores: list[float]  # accuracy of each draw


def few_label_probe(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    test_labels: Int[Tensor, " n"],
    *,
    per_class: int = 10,
    draws: int = 5,
    probe: Score | None = None,
    seed: int = 0,
) -> FewLabelScore:
    """The accuracy of `probe` on the test features, trained on `per_class` features of each class.

    probe: a function of (training features, labels, test features, labels).  By default an exact linear probe of
        strength 0.1, because labels are too few to choose a strength.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> few_label_probe(x, y, x, y, per_class=5).mean
    1.0
    """
    check_features(train, train_labels, test)
    check_classes(train_labels)
    check.whole(1, per_class=per_class, draws=draws)
    check.whole(0, seed=seed)
    score = _linear if probe is None else probe
    scores = []
    for draw in range(draws):
        index = some_of_each(train_labels, per_class, seed=seed + draw)
        scores.append(score(train[index], train_labels[index], test, test_labels))
    values = torch.tensor(scores, dtype=torch.float64)
    return FewLabelScore(float(values.mean()), float(values.std()) if draws > 1 else 0.0, scores)


def few_label_correct(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    test_labels: Int[Tensor, " n"],
    *,
    per_class: int = 10,
    draws: int = 5,
    seed: int = 0,
) -> Float[Tensor, " n"]:
    """The share of draws in which the linear probe is right, for each test feature.  Its mean is the score above.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> few_label_correct(x, y, x, y, per_class=5).mean().item()
    1.0
    """
    right: list[Tensor] = []

    def score(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor) -> float:
        right.append(in_float64(linear_probe(x, y, x_test, y_test, strengths=[0.1]).logits.argmax(1) == y_test))
        return float(right[-1].mean())

    few_label_probe(train, train_labels, test, test_labels, per_class=per_class, draws=draws, probe=score, seed=seed)
    return torch.stack(right).mean(0)


def some_of_each(labels: Int[Tensor, " m"], per_class: int, *, seed: int) -> Int64[Tensor, "_"]:
    """Indices of `per_class` samples of every class."""
    counts = labels.bincount()
    rarest = int(counts[counts > 0].min())
    if not 1 <= per_class <= rarest:
        raise ValueError(f"between 1 and {rarest} labels of each class can be drawn, got {per_class}")
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed), device="cpu").to(
        labels.device
    )
    return torch.cat([shuffled[labels[shuffled] == c][:per_class] for c in labels.unique()])


def _linear(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> float:
    return linear_probe(train, train_labels, test, test_labels, strengths=[0.1]).accuracy
