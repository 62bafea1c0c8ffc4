"""A probe by a small network, which reads from frozen features what a linear classifier cannot.

Three layers, d-1024-1024-classes, batch norm and ReLU between them; AdamW, a cosine to zero.  SMI's and VISReg's papers
give neither widths nor rates for theirs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from reglet import check
from reglet.probes.check import check_classes, check_features
from reglet.probes.holdout import check_choice, choose, validation_accuracy
from reglet.probes.metrics import accuracy
from reglet.probes.standard import Standard
from reglet.seeded import seeded

RATES = (1e-4, 1e-3, 1e-2)


class MLPScore(NamedTuple):
    """rate: the chosen one.  validation: the accuracy of each rate, if there was a choice.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> mlp_probe(x, y, x, y, width=16, rates=(0.01,)).logits.shape
    torch.Size([60, 2])
    """

    accuracy: float  # on the test features
    rate: float  # the one chosen
    validation: dict[float, float]  # rate -> accuracy on the validation split
    logits: Float[Tensor, "n classes"]  # of the test features


def mlp_probe(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    test_labels: Int[Tensor, " n"],
    *,
    width: int = 1024,
    rates: Sequence[float] = RATES,
    epochs: int = 20,
    batch: int = 256,
    weight_decay: float = 1e-4,
    holdout: float = 0.2,
    seed: int = 0,
) -> MLPScore:
    """Choose the rate on `holdout` of the training features, train again on all of them, score on the test features.

    If validation scores are equal, the lowest rate wins.  A single rate is not validated.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> mlp_probe(x, y, x, y, width=16, rates=(0.01,)).accuracy
    1.0
    """
    check_features(train, train_labels, test)
    check_classes(train_labels)
    check.numbers("rates", rates, each=check.positive)
    check.whole(1, width=width, epochs=epochs)
    check.whole(2, batch=batch)
    check.not_negative(weight_decay=weight_decay)
    check_choice(holdout=holdout, seed=seed)
    standard = Standard(train)  # of all training features: there is no label in it
    x, x_test, y = standard(train, torch.float32), standard(test, torch.float32), train_labels.long()
    classes = int(y.max()) + 1

    def trained(index: Int64[Tensor, "_"], rate: float) -> nn.Module:
        with seeded(seed, x.device), torch.enable_grad():
            model = _network(x.shape[1], width, classes).to(x.device)
            _train(model, x[index], y[index], rate=rate, epochs=epochs, batch=batch, weight_decay=weight_decay)
        return model.eval()

    @torch.no_grad()
    def validated(fit: Int64[Tensor, "_"], held: Int64[Tensor, "_"], rates: Sequence[float]) -> list[float]:
        return [validation_accuracy(trained(fit, rate)(x[held]), y[held]) for rate in rates]

    rate, validation = choose(sorted(rates), train_labels, validated, holdout=holdout, seed=seed)
    with torch.no_grad():
        logits: Tensor = trained(torch.arange(len(x), device=x.device), rate)(x_test)
    if not bool(torch.isfinite(logits).all()):
        raise ValueError(f"the probe diverged at rate {rate:g}, the best of its rates; expected a lower one")
    return MLPScore(accuracy(logits, test_labels), rate, validation, logits)


def _network(d: int, width: int, classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for d_in in (d, width):
        layers += [nn.Linear(d_in, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def _train(
    model: nn.Module, x: Tensor, y: Tensor, *, rate: float, epochs: int, batch: int, weight_decay: float
) -> None:
    per_epoch = max(1, len(x) // batch)  # batches of `batch` or a little more: batch norm wants no small remainder
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=weight_decay)
    step = 0
    for _ in range(epochs):
        for index in torch.randperm(len(x)).to(x.device).tensor_split(per_epoch):
            optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * step / (epochs * per_epoch))) / 2
            optimizer.zero_grad()
            F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
            step += 1
