"""Empirical risk minimization, the baseline."""

from collections.abc import Sequence

from torch import Tensor

from reglet.methods.domains.base import OnDomains, risks
from reglet.types import Terms


class ERM(OnDomains):
    """1/E sum_e R_e.

    >>> import torch
    >>> z, y, head = torch.zeros(2, 8, 4).unbind(), (torch.arange(8) % 3,) * 2, torch.nn.Linear(4, 3, bias=False)
    >>> round(ERM()(z, y, head).item(), 4)  # log 3
    1.0986
    """

    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        return {"risk": risks(logits, y).mean()}
