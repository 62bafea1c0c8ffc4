"""Empirical risk minimization: what the others are compared with."""

from collections.abc import Sequence

from torch import Tensor

from reglet.methods.domains.base import OnDomains, risks
from reglet.types import Terms


class ERM(OnDomains):
    """1/E sum_e R_e."""

    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        return {"risk": risks(logits, y).mean()}
