"""Accuracy in each domain."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class DomainShift:
    """accuracy, count: by the name of the domain."""

    accuracy: dict[str, float]
    count: dict[str, int]

    @property
    def mean(self) -> float:
        """The mean over domains, which count the same, as in DomainBed."""
        return sum(self.accuracy.values()) / len(self.accuracy)

    @property
    def worst(self) -> str:
        return min(self.accuracy, key=self.accuracy.__getitem__)

    @property
    def gap(self) -> float:
        """The difference between the best domain and the worst."""
        return max(self.accuracy.values()) - min(self.accuracy.values())


def domain_shift(
    predictions: Int[Tensor, " n"],
    labels: Int[Tensor, " n"],
    domain: Int[Tensor, " n"],
    *,
    names: Sequence[str] | None = None,
) -> DomainShift:
    """The accuracy of class predictions in each domain.  names: by the number of the domain.

    >>> import torch
    >>> shift = domain_shift(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 0, 0]), torch.tensor([0, 0, 0, 1]))
    >>> shift.worst, round(shift.mean, 3)
    ('1', 0.333)
    """
    if not len(labels):
        raise ValueError("domain_shift needs one sample or more")
    accuracy, count = {}, {}
    for d in domain.unique().tolist():
        name = str(d) if names is None else names[d]
        here = domain == d
        accuracy[name] = float((predictions[here] == labels[here]).cpu().double().mean())
        count[name] = int(here.sum())
    return DomainShift(accuracy, count)
