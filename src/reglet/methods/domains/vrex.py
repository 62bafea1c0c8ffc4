"""Variance risk extrapolation.  Krueger et al., ICML 2021, arXiv:2003.00688."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from reglet.methods.domains.annealed import Annealed
from reglet.methods.domains.base import risks
from reglet.schedules import Weight
from reglet.types import Terms


class VREx(Annealed):
    """1/E sum_e R_e + weight 1/E sum_e (R_e - mean R)^2.

    weight: 1 for the first 500 steps, then 10, DomainBed's defaults; see `Annealed`.

    >>> import torch
    >>> z, y, head = torch.randn(2, 8, 4).unbind(), (torch.arange(8) % 3,) * 2, torch.nn.Linear(4, 3)
    >>> list(VREx().terms(z, y, head))
    ['risk', 'penalty']
    """

    least_domains: ClassVar[int] = 2
    degree: ClassVar[int] = 2

    def __init__(self, *, weight: Weight = 10.0, before: float = 1.0, anneal: int = 500) -> None:
        super().__init__(weight=weight, before=before, anneal=anneal)

    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        r = risks(logits, y)
        return {"risk": r.mean(), "penalty": self.penalty(r.var(correction=0))}
