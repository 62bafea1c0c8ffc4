"""A linear probe by SGD on frozen features, at many learning rates at once.

VISReg's protocol: SGD with momentum 0.9 and no weight decay, a cosine to zero, 13 learning rates from 1e-4 to 0.5 for
256 samples a step (others in proportion), one head for each.  All heads see the same batches, so that a step is two
matrix products, with W of all heads side by side.

Where we differ: features are extracted once, so there are no augmentations.  The training set's mean and deviation
replace the batch norm before each head.  By default correlations are removed too (see `Decorrelated`); ten epochs then
reach what a hundred reach without.  `damping=None` keeps them, as in the protocol.  Weights start at zero, not at
N(0, 0.01^2), because the problem is convex.

With `weight_decay` it is the problem of scikit-learn's LogisticRegression(C=1 / (m * weight_decay)) on standardised
features, which has one minimum.  The rate that gets lowest is then taken.  (Held-out labels would prefer a rate that
stops early, which regularizes once more.)  `linear_probe` solves it exactly.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor

from reglet import check
from reglet.probes.check import check_classes, check_features
from reglet.probes.holdout import check_choice, choose
from reglet.probes.metrics import accuracy
from reglet.probes.standard import Decorrelated, Standard

RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.3, 0.5)
MOMENTUM = 0.9


class LinearSGDScore(NamedTuple):
    """rate: the chosen one.  validation: the score of each rate, if there was a choice.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> score = linear_sgd_probe(x, y, x, y, rates=(0.1, 0.5))
    >>> score.rate in score.validation, score.logits.shape
    (True, torch.Size([60, 2]))
    """

    accuracy: float  # on the test features
    rate: float  # the one chosen
    validation: dict[float, float]  # rate -> mean log-likelihood of labels held out; with decay, minus the objective
    logits: Float[Tensor, "n classes"]  # of the test features


def linear_sgd_probe(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    test_labels: Int[Tensor, " n"],
    *,
    rates: Sequence[float] = RATES,
    epochs: int = 10,
    batch: int = 256,
    weight_decay: float = 0.0,
    damping: float | None = 1e-2,
    holdout: float = 0.2,
    seed: int = 0,
) -> LinearSGDScore:
    """Choose the rate on `holdout` of the training features, train again on all of them, score on the test features.

    The rate is chosen by log-likelihood.  The best of 13 noisy accuracies would often be a rate that was lucky.
    A single rate is not validated, and with `weight_decay` nothing is held out.  Rates that diverge are never chosen;
    if all diverge, the error says so.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> linear_sgd_probe(x, y, x, y, rates=(0.5,)).accuracy
    1.0
    """
    check_features(train, train_labels, test)
    check_classes(train_labels)
    check.numbers("rates", rates, each=check.positive)
    check.whole(1, epochs=epochs, batch=batch)
    check.not_negative(weight_decay=weight_decay)
    if damping is not None:
        check.positive(damping=damping)
    check_choice(holdout=holdout, seed=seed)
    standard = Standard(train)  # of all training features: there is no label in it
    x, x_test, y = standard(train, torch.float32), standard(test, torch.float32), train_labels.long()
    penalty = x.new_ones(x.shape[1])
    if damping is not None:
        decorrelated = Decorrelated(x, damping=damping)
        x, x_test, penalty = decorrelated(x), decorrelated(x_test), decorrelated.penalty
    heads = _Heads(epochs=epochs, batch=batch, decay=weight_decay * penalty if weight_decay else None, seed=seed)

    if heads.decay is not None:
        fitted = heads.fit(x, y, rates, classes=int(y.max()) + 1)
        objective = heads.objective(fitted, x, y)
        best = int(objective.argmin())
        return _scored(
            fitted(x_test)[:, best], test_labels, rates[best], dict(zip(rates, (-objective).tolist(), strict=True))
        )

    def validated(fit: Int64[Tensor, "_"], held: Int64[Tensor, "_"], rates: Sequence[float]) -> list[float]:
        logits = heads.fit(x[fit], y[fit], rates, classes=int(y.max()) + 1)(x[held])
        losses = torch.stack([F.cross_entropy(each, y[held]) for each in logits.unbind(1)])
        return (-losses.nan_to_num(nan=math.inf)).tolist()

    rate, validation = choose(sorted(rates), train_labels, validated, holdout=holdout, seed=seed)
    logits = heads.fit(x, y, [rate], classes=int(y.max()) + 1)(x_test)[:, 0]
    return _scored(logits, test_labels, rate, validation)


def _scored(
    logits: Float[Tensor, "n classes"], labels: Int[Tensor, " n"], rate: float, validation: dict[float, float]
) -> LinearSGDScore:
    if not bool(torch.isfinite(logits).all()):
        raise ValueError(f"the probe diverged at rate {rate:g}, the best of its rates; expected a lower one")
    return LinearSGDScore(accuracy(logits, labels), rate, validation, logits)


class _Heads:
    """Softmax regressions that see the same batches and differ in their learning rate.

    The gradient of a head's mean cross-entropy is (p - onehot) x^T / b, p its softmax, so no graph is needed.  Classes
    are the first axis, because a softmax over few classes is ten times slower along the last one.
    """

    def __init__(self, *, epochs: int, batch: int, decay: Float[Tensor, " d"] | None, seed: int) -> None:
        self.epochs, self.batch, self.decay, self.seed = epochs, batch, decay, seed

    def fit(
        self, x: Float[Tensor, "m d"], y: Int64[Tensor, " m"], rates: Sequence[float], *, classes: int
    ) -> "_Fitted":
        heads, wide = len(rates), classes * len(rates)
        w, b = x.new_zeros(wide, x.shape[1]), x.new_zeros(wide, 1)
        w_speed, b_speed = torch.zeros_like(w), torch.zeros_like(b)
        per_epoch = -(-len(x) // self.batch)
        steps = self.epochs * per_epoch
        peak = x.new_tensor(rates).repeat(classes)[:, None] * (len(x) / per_epoch / 256)
        generator = torch.Generator().manual_seed(self.seed)
        for step in range(steps):
            if step % per_epoch == 0:
                batches = torch.randperm(len(x), generator=generator, device="cpu").to(x.device).tensor_split(per_epoch)
            index = batches[step % per_epoch]
            xs, ys = x.index_select(0, index), y[index].expand(1, heads, -1)
            error = torch.addmm(b, w, xs.T).view(classes, -1).softmax(0)
            error.view(classes, heads, -1).scatter_add_(0, ys, error.new_full((1, 1, 1), -1.0).expand(ys.shape))
            error = error.view(wide, -1)
            w_speed.mul_(MOMENTUM).addmm_(error, xs, alpha=1 / len(xs))
            b_speed.mul_(MOMENTUM).add_(error.mean(1, keepdim=True))
            if self.decay is not None:
                w_speed.addcmul_(w, self.decay)
            rate = peak * (-(1 + math.cos(math.pi * step / steps)) / 2)
            w.addcmul_(w_speed, rate)
            b.addcmul_(b_speed, rate)
        return _Fitted(w, b, classes)

    def objective(self, fitted: "_Fitted", x: Float[Tensor, "m d"], y: Int64[Tensor, " m"]) -> Float[Tensor, " heads"]:
        """The mean cross-entropy and half the penalty of each head; infinite if it diverged."""
        fits = torch.stack([F.cross_entropy(each, y) for each in fitted(x).unbind(1)])
        penalty = fitted.w.square() @ (x.new_zeros(x.shape[1]) if self.decay is None else self.decay)
        found = fits + penalty.view(fitted.classes, -1).sum(0) / 2
        return found.nan_to_num(nan=math.inf)


class _Fitted(NamedTuple):
    w: Float[Tensor, "wide d"]
    b: Float[Tensor, "wide 1"]
    classes: int

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n heads classes"]:
        return torch.addmm(self.b, self.w, x.T).view(self.classes, -1, len(x)).permute(2, 1, 0)
