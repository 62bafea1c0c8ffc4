"""The part of the training features on which a probe chooses its settings, so that test features stay unseen."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from reglet import check
from reglet.probes.check import check_classes, check_features
from reglet.probes.metrics import accuracy

# Features are given with an index of those that count, or None for all: a part of them would be a copy.
# (features, strength of a penalty, index) -> scores of classes
Predict = Callable[[Tensor, float, Tensor | None], Tensor]
# (features, labels, index) -> what was fitted
Fitter = Callable[[Tensor, Tensor, Tensor | None], Predict]


def split(labels: Int[Tensor, " m"], *, holdout: float, seed: int) -> tuple[Int64[Tensor, "_"], Int64[Tensor, "_"]]:
    """Indices to fit on, and indices to choose on, which have `holdout` of every class."""
    check_choice(holdout=holdout, seed=seed)
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed), device="cpu").to(
        labels.device
    )
    members = [shuffled[labels[shuffled] == c] for c in labels.unique()]
    counts = [round(holdout * len(m)) for m in members]
    held = torch.cat([m[:k] for m, k in zip(members, counts, strict=True)])
    fit = torch.cat([m[k:] for m, k in zip(members, counts, strict=True)])
    if not len(fit) or not len(held):
        raise ValueError(f"{len(labels)} training features in {len(members)} classes leave {len(held)} to choose on")
    return fit, held


def check_choice(*, holdout: float, seed: int) -> None:
    """Checks the arguments even if nothing is held out: a wrong one must not pass because it is not needed."""
    check.whole(0, seed=seed)
    check.probability(holdout=holdout)
    if not 0 < holdout < 1:
        raise ValueError(f"holdout is a fraction between 0 and 1, got {holdout}")


def validation_accuracy(logits: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> float:
    """The accuracy; 0 for a classifier that diverged."""
    return accuracy(logits, labels) if bool(torch.isfinite(logits).all()) else 0.0


def choose(
    values: Sequence[float],
    labels: Int[Tensor, " m"],
    score: Callable[[Int64[Tensor, "_"], Int64[Tensor, "_"], Sequence[float]], Sequence[float]],
    *,
    holdout: float,
    seed: int,
) -> tuple[float, dict[float, float]]:
    """The best of `values` by `score(fit, held, values)`, and the score of each.  Ties go to the first.

    A single value is not validated.
    """
    if len(values) == 1:
        return values[0], {}
    scores = dict(zip(values, score(*split(labels, holdout=holdout, seed=seed), values), strict=True))
    return max(scores, key=scores.__getitem__), scores


def fit_by_strength(
    fitter: Fitter,
    train: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    *,
    strengths: Sequence[float],
    holdout: float,
    seed: int,
) -> tuple[float, dict[float, float], Float[Tensor, "n classes"]]:
    """The best strength on `holdout` of the training features (ties go to the strongest); the score of each; and the
    scores of the test features, after fitting again on all training features."""
    check_features(train, labels, test)
    check_classes(labels)
    check.numbers("strengths", strengths, each=check.positive)
    check_choice(holdout=holdout, seed=seed)

    def validated(fit: Int64[Tensor, "_"], held: Int64[Tensor, "_"], strengths: Sequence[float]) -> list[float]:
        predict = fitter(train, labels, fit)
        return [accuracy(predict(train, strength, held), labels[held]) for strength in strengths]

    strength, validation = choose(sorted(strengths, reverse=True), labels, validated, holdout=holdout, seed=seed)
    return strength, validation, fitter(train, labels, None)(test, strength, None)
