"""What a linear classifier can read from frozen features.

    min over W, b of   1/m sum_i CE(W x_i + b, y_i) + strength/2 |W|^2

on features standardised by the training set's mean and deviation.  The problem is convex and solved to convergence in
float64, so a score has no learning rate, no number of epochs and no seed but that of the validation split, on which
alone the strength is chosen.  (scikit-learn's LogisticRegression(C=1 / (m * strength)) is the same problem.)
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from reglet.probes.check import check_features

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


class LinearScore(NamedTuple):
    accuracy: float  # on the test features
    strength: float  # the one chosen
    validation: dict[float, float]  # strength -> accuracy on the validation split


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

    Of equal validation scores the stronger penalty wins.  A single strength needs no validation, and gets none.
    """
    check_features(train, train_labels, test)
    if not strengths or min(strengths) <= 0:
        raise ValueError(f"strengths must be positive and at least one, got {tuple(strengths)}")
    validation = {} if len(strengths) == 1 else _validate(train, train_labels, strengths, holdout, seed)
    best = max(validation, key=validation.__getitem__) if validation else strengths[0]
    standard = _Standard(train)
    model = logistic_regression(standard(train), train_labels, strength=best)
    return LinearScore(_accuracy(standard(test), test_labels, *model), best, validation)


def logistic_regression(
    x: Float[Tensor, "m d"], labels: Int[Tensor, " m"], *, strength: float, tolerance: float = 1e-5
) -> tuple[Float[Tensor, "classes d"], Float[Tensor, " classes"]]:
    """W and b of the problem above, by L-BFGS from zero (1,000 steps at most), to a gradient within `tolerance`."""
    x, y = x.double(), labels.long()
    classes = int(y.max()) + 1
    w = x.new_zeros(classes, x.shape[1], requires_grad=True)
    b = x.new_zeros(classes, requires_grad=True)
    solver = torch.optim.LBFGS(
        [w, b],
        max_iter=1000,
        history_size=50,
        tolerance_grad=tolerance,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(F.linear(x, w, b), y) + strength / 2 * w.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        solver.step(objective)
    return w.detach(), b.detach()


def _validate(
    x: Float[Tensor, "m d"], labels: Int[Tensor, " m"], strengths: Sequence[float], holdout: float, seed: int
) -> dict[float, float]:
    """Strength -> accuracy on the part held out, strongest first."""
    fit, held = _split(labels, holdout, seed)
    standard = _Standard(x[fit])
    x_fit, x_held = standard(x[fit]), standard(x[held])
    scores = {}
    for strength in sorted(strengths, reverse=True):
        model = logistic_regression(x_fit, labels[fit], strength=strength)
        scores[strength] = _accuracy(x_held, labels[held], *model)
    return scores


def _split(labels: Int[Tensor, " m"], holdout: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices to fit on and to choose on, `holdout` of every class in the latter."""
    if not 0 < holdout < 1:
        raise ValueError(f"holdout is a fraction between 0 and 1, got {holdout}")
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    members = [shuffled[labels[shuffled] == c] for c in labels.unique()]
    counts = [round(holdout * len(m)) for m in members]
    held = torch.cat([m[:k] for m, k in zip(members, counts, strict=True)])
    fit = torch.cat([m[k:] for m, k in zip(members, counts, strict=True)])
    if not len(fit) or not len(held):
        raise ValueError(f"{len(labels)} training features in {len(members)} classes leave {len(held)} to choose on")
    return fit, held


class _Standard:
    """(x - mean) / deviation of the features that it was made with; a feature that does not vary becomes 0.

    With more features than samples, the coordinates of that in the span of the samples: a penalised W has no part
    outside it, so the problem is the same and smaller.
    """

    def __init__(self, x: Float[Tensor, "m d"]) -> None:
        x = x.double()
        self.mean, self.scale = x.mean(0), x.std(0, correction=0)
        self.basis: Tensor | None = None
        if x.shape[1] > len(x):
            self.basis = torch.linalg.qr(self(x).T).Q

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        centred = x.double() - self.mean
        x = torch.where(self.scale > 1e-12, centred / self.scale.clamp_min(1e-12), torch.zeros_like(centred))
        return x if self.basis is None else x @ self.basis


def _accuracy(x: Tensor, labels: Tensor, w: Tensor, b: Tensor) -> float:
    return float((F.linear(x.double(), w, b).argmax(1) == labels).double().mean())
