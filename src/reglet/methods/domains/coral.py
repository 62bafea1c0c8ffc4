"""Deep CORAL.  Sun and Saenko, 2016, arXiv:1607.01719."""

from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.methods.domains.base import OnDomains, require_domains, risks
from reglet.precision import no_autocast, of_one_dtype
from reglet.schedules import Scheduled, Weight, checked_weight
from reglet.types import Scalar, Terms


def coral(z: Sequence[Float[Tensor, "_ d"]]) -> Scalar:
    """Mean over pairs of domains of  mean (mu_i - mu_j)^2 + mean (C_i - C_j)^2,  C = covariance with n - 1.

    As in DomainBed.  The paper has ||C_i - C_j||_F^2 / (4 d^2), a quarter of the second part, and no means.

    >>> z = torch.randn(8, 4)
    >>> coral([z, z]).item(), round(coral([z, z + 1]).item(), 4)
    (0.0, 1.0)
    """
    require_domains("coral", z, domains=2, samples=2)
    with no_autocast(z[0]):
        wide = of_one_dtype(z)
        means = [each.mean(0) for each in wide]
        covariances = [(c := each - mu).T @ c / (len(each) - 1) for each, mu in zip(wide, means, strict=True)]
        value = torch.stack(
            [
                (means[i] - means[j]).square().mean() + (covariances[i] - covariances[j]).square().mean()
                for i, j in combinations(range(len(z)), 2)
            ]
        ).mean()
    check.no_overflow("coral", {"the distance": value}, *z)
    return value


class CORAL(Scheduled, OnDomains):
    """1/E sum_e R_e + weight coral(z).  weight: a number or a schedule.

    >>> z, y, head = torch.randn(2, 8, 4).unbind(), (torch.arange(8) % 3,) * 2, torch.nn.Linear(4, 3)
    >>> list(CORAL().terms(z, y, head))
    ['risk', 'penalty']
    """

    least_domains: ClassVar[int] = 2
    least_samples: ClassVar[int] = 2
    degree: ClassVar[int] = 4

    def __init__(self, *, weight: Weight = 1.0) -> None:
        super().__init__()
        self.weight = checked_weight("weight", weight)

    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        return {"risk": risks(logits, y).mean(), "penalty": self.now("weight") * coral(z)}
