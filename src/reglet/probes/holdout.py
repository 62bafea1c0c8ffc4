"""The part of the training features on which a probe chooses, so that it need not look at the test features."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int, Int64
from torch import Tensor


def split(labels: Int[Tensor, " m"], *, holdout: float, seed: int) -> tuple[Int64[Tensor, "_"], Int64[Tensor, "_"]]:
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


def choose(
    values: Sequence[float],
    labels: Int[Tensor, " m"],
    score: Callable[[Int64[Tensor, "_"], Int64[Tensor, "_"], Sequence[float]], Sequence[float]],
    *,
    holdout: float,
    seed: int,
) -> tuple[float, dict[float, float]]:
    """The best of `values` by `score(fit, held, values)`, the first of equal ones, and the score of each.

    A single value needs no validation, and gets none.
    """
    if not values or min(values) <= 0:
        raise ValueError(f"expected positive numbers to choose from, at least one; got {tuple(values)}")
    if len(values) == 1:
        return values[0], {}
    scores = dict(zip(values, score(*split(labels, holdout=holdout, seed=seed), values), strict=True))
    return max(scores, key=scores.__getitem__), scores
