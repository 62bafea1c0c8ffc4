"""The exact linear probe: logistic regression on frozen features.

    min over W, b of   1/m sum_i CE(W x_i + b, y_i) + strength/2 |W|^2

on features standardised by the training set's mean and deviation.  The problem is convex and solved to convergence, in
float64 on the CPU and in float32 on an accelerator.  So the score does not depend on a learning rate or a number of
epochs.  Its only seed is that of the validation split, which only chooses the strength.  (scikit-learn's
LogisticRegression(C=1 / (m * strength)) is the same problem.)  Features are standardized a few at a time, so that no
copy of all is made.  Papers use `linear_sgd_probe` instead: it is faster on many samples, and has a rate to choose.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor

from reglet import check
from reglet.probes.holdout import Predict, fit_by_strength
from reglet.probes.metrics import accuracy
from reglet.probes.standard import Index, Repeated, Standard, parts, wide_dtype

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


class LinearScore(NamedTuple):
    """strength: the chosen one.  validation: the accuracy of each strength, if there was a choice.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> score = linear_probe(x, y, x, y, strengths=(0.1, 1.0))
    >>> score.strength, score.logits.shape
    (1.0, torch.Size([60, 2]))
    """

    accuracy: float  # on the test features
    strength: float  # the one chosen
    validation: dict[float, float]  # strength -> accuracy on the validation split
    logits: Float[Tensor, "n classes"]  # of the test features


def linear_probe(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    test_labels: Int[Tensor, " n"],
    *,
    strengths: Sequence[float] = STRENGTHS,
    holdout: float = 0.2,
    seed: int = 0,
) -> LinearScore:
    """Choose the strength on `holdout` of the training features, fit again on all of them, score on the test features.

    If validation scores are equal, the stronger penalty wins.  A single strength is not validated.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> linear_probe(x, y, x, y).accuracy
    1.0
    """
    strength, validation, logits = fit_by_strength(
        _fitter, train, train_labels, test, strengths=strengths, holdout=holdout, seed=seed
    )
    return LinearScore(accuracy(logits, test_labels), strength, validation, logits)


def logistic_regression(
    x: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    *,
    strength: float,
    tolerance: float = 1e-5,
    standard: Standard | None = None,
) -> tuple[Float[Tensor, "classes r"], Float[Tensor, " classes"]]:
    """W and b of the problem above, by L-BFGS from zero (at most 1,000 steps), to a gradient within `tolerance`.

    standard: the coordinates in which the problem is solved; by default those of x.

    >>> weight, bias = logistic_regression(torch.eye(2).repeat(30, 1), torch.arange(60) % 2, strength=0.1)
    >>> weight.shape, bias.shape
    (torch.Size([2, 2]), torch.Size([2]))
    """
    check.tensor("x", x, None, None)
    check.class_numbers(len(x), labels=labels)
    check.all_finite(features=x)
    check.positive(strength=strength, tolerance=tolerance)
    wide = wide_dtype(x)
    make = (lambda: (part.to(wide) for part in parts(x))) if standard is None else lambda: standard.parts(x)
    return _solve(Repeated(make, numbers=x.numel()), labels.long(), strength=strength, tolerance=tolerance)


def _solve(
    rows: Repeated, y: Int64[Tensor, " m"], *, strength: float, tolerance: float = 1e-5
) -> tuple[Float[Tensor, "classes r"], Float[Tensor, " classes"]]:
    classes, first = int(y.max()) + 1, next(iter(rows))
    w = first.new_zeros(classes, first.shape[1], requires_grad=True)
    b = first.new_zeros(classes, requires_grad=True)
    solver = torch.optim.LBFGS(
        [w, b],
        max_iter=1000,
        history_size=50,
        tolerance_grad=tolerance,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    @torch.no_grad()
    def objective() -> Tensor:
        """The gradient of a sample's cross-entropy is (p - onehot) x^T, p its softmax."""
        loss, w.grad, b.grad = strength / 2 * w.square().sum(), strength * w, torch.zeros_like(b)
        start = 0
        for x in rows:
            own = y[start : start + len(x), None]
            start += len(x)
            log_p = F.linear(x, w, b).log_softmax(1)
            loss -= log_p.gather(1, own).sum() / len(y)
            error = log_p.exp_().scatter_add_(1, own, log_p.new_full(own.shape, -1.0)) / len(y)
            w.grad.addmm_(error.T, x)
            b.grad += error.sum(0)
        return loss

    solver.step(objective)
    return w.detach(), b.detach()


def _fitter(x: Float[Tensor, "m d"], labels: Int[Tensor, " m"], index: Index | None) -> Predict:
    standard = Standard(x, index=index)
    y = labels.long() if index is None else labels[index].long()
    rows = Repeated(lambda: standard.parts(x, index=index), numbers=len(y) * x.shape[1])

    def predict(new: Float[Tensor, "n d"], strength: float, at: Index | None) -> Float[Tensor, "_ classes"]:
        w, b = _solve(rows, y, strength=strength)
        return torch.cat([F.linear(part, w, b) for part in standard.parts(new, index=at)])

    return predict
