"""Deep CORAL.  Sun and Saenko, 2016, arXiv:1607.01719."""

from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.methods.domains.base import OnDomains, risks
from reglet.types import Scalar, Terms


def coral(z: Sequence[Float[Tensor, "_ d"]]) -> Scalar:
    """Mean over pairs of domains of  mean (mu_i - mu_j)^2 + mean (C_i - C_j)^2,  C = covariance with n - 1.

    As in DomainBed.  The paper has ||C_i - C_j||_F^2 / (4 d^2), a quarter of the second part, and no means.
    """
    means = [each.mean(0) for each in z]
    covariances = [(c := each - mu).T @ c / (len(each) - 1) for each, mu in zip(z, means, strict=True)]
    return torch.stack(
        [
            (means[i] - means[j]).square().mean() + (covariances[i] - covariances[j]).square().mean()
            for i, j in combinations(range(len(z)), 2)
        ]
    ).mean()


class CORAL(OnDomains):
    """1/E sum_e R_e + weight coral(z)."""

    least_domains: ClassVar[int] = 2
    least_samples: ClassVar[int] = 2

    def __init__(self, *, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        return {"risk": risks(logits, y).mean(), "penalty": self.weight * coral(z)}
