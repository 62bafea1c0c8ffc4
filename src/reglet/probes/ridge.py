"""Ridge regression to one-hot labels: a linear probe in closed form.  One decomposition serves all strengths.

    min over W, b of   1/m sum_i |W x_i + b - onehot(y_i)|^2 + strength |W|^2

on standardised features.  The largest output is the class.  scikit-learn's RidgeClassifier(alpha=m * strength) predicts
the same: it regresses to -1 and 1, which only shifts and scales all outputs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from reglet.probes.holdout import Predict, fit_by_strength
from reglet.probes.metrics import accuracy
from reglet.probes.standard import Index, Standard, wide_dtype

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


class RidgeScore(NamedTuple):
    """strength: the chosen one.  validation: the accuracy of each strength, if there was a choice.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> ridge_probe(x, y, x, y).outputs.shape
    torch.Size([60, 2])
    """

    accuracy: float  # on the test features
    strength: float  # the one chosen
    validation: dict[float, float]  # strength -> accuracy on the validation split
    outputs: Float[Tensor, "n classes"]  # of the test features


def ridge_probe(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    test_labels: Int[Tensor, " n"],
    *,
    strengths: Sequence[float] = STRENGTHS,
    holdout: float = 0.2,
    seed: int = 0,
) -> RidgeScore:
    """Choose the strength on `holdout` of the training features, fit again on all of them, score on the test features.

    If validation scores are equal, the stronger penalty wins.  A single strength is not validated.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> ridge_probe(x, y, x, y).accuracy
    1.0
    """
    strength, validation, outputs = fit_by_strength(
        _fitter, train, train_labels, test, strengths=strengths, holdout=holdout, seed=seed
    )
    return RidgeScore(accuracy(outputs, test_labels), strength, validation, outputs)


def _fitter(x: Float[Tensor, "m d"], labels: Int[Tensor, " m"], index: Index | None) -> Predict:
    """W = U (variance + strength)^-1 U^T X^T Y / m,  b = mean(Y), from sums over a few samples at a time."""
    standard = Standard(x, index=index)
    y = labels.long() if index is None else labels[index].long()
    m, mean = len(y), y.bincount().to(wide_dtype(x)) / len(y)
    squares = products = mean.new_zeros(())
    start = 0
    for part in standard.parts(x, index=index):
        own = F.one_hot(y[start : start + len(part)], len(mean)).to(mean.dtype) - mean
        start += len(part)
        squares, products = squares + part.T @ part / m, products + part.T @ own / m
    variance, axes = torch.linalg.eigh(squares)
    y_axes = axes.T @ products

    def predict(new: Float[Tensor, "n d"], strength: float, at: Index | None) -> Float[Tensor, "_ classes"]:
        w = axes @ (y_axes / (variance.clamp_min(0) + strength)[:, None])
        return torch.cat([part @ w + mean for part in standard.parts(new, index=at)])

    return predict
