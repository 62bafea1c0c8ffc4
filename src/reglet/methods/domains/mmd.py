"""Maximum mean discrepancy between domains.  Li et al., CVPR 2018; Gretton et al., JMLR 2012, for the statistic."""

from collections.abc import Sequence
from math import sqrt
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.methods.domains.base import OnDomains, require_domains, risks
from reglet.precision import no_autocast, of_one_dtype
from reglet.schedules import Scheduled, Weight, checked_weight
from reglet.types import Scalar, Terms

GAMMAS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def mmd(z: Sequence[Float[Tensor, "_ d"]], *, gammas: Sequence[float] = GAMMAS) -> Scalar:
    """Mean over pairs of domains of  mean k(z_i, z_i) + mean k(z_j, z_j) - 2 mean k(z_i, z_j).

    k(a, b) = sum_gamma exp(-gamma ||a - b||^2).  The kernels and the statistic, biased and so never negative, are
    DomainBed's.  Distances are taken directly: by norms and a product, float32 would not know a sample from itself at
    gamma = 1000.

    >>> z = torch.randn(8, 4)
    >>> round(mmd([z, z]).item(), 4), bool(mmd([z, z + 1]) > 0)
    (0.0, True)
    """
    require_domains("mmd", z, domains=2, samples=1)
    gammas = _checked(gammas)
    with no_autocast(z[0]):
        rows = torch.cat(of_one_dtype(z))
        # Beyond `far` every kernel is 0, even in float64.  Squares of larger distances could overflow.
        far = sqrt(750 / min(gammas))
        distance = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").clamp_max(far)
        squared = distance.square()
        k = torch.stack([(-gamma * squared).exp() for gamma in gammas]).sum(0)
        means = torch.block_diag(*(rows.new_full((1, len(each)), 1 / len(each)) for each in z))
        blocks = means @ k @ means.T  # mean k of every domain with every other
        i, j = torch.triu_indices(len(z), len(z), offset=1, device=rows.device)
        return (blocks.diagonal()[i] + blocks.diagonal()[j] - 2 * blocks[i, j]).mean()


def _checked(gammas: Sequence[float]) -> tuple[float, ...]:
    if isinstance(gammas, str | bytes) or not isinstance(gammas, Sequence) or not gammas:
        raise TypeError(f"gammas must be a sequence of positive numbers, got {gammas!r}")
    for gamma in gammas:
        check.positive(gamma=gamma)
    return tuple(gammas)


class MMD(Scheduled, OnDomains):
    """1/E sum_e R_e + weight mmd(z).  weight: a number or a schedule.

    >>> z, y, head = torch.randn(2, 8, 4).unbind(), (torch.arange(8) % 3,) * 2, torch.nn.Linear(4, 3)
    >>> list(MMD().terms(z, y, head))
    ['risk', 'penalty']
    """

    least_domains: ClassVar[int] = 2

    def __init__(self, *, weight: Weight = 1.0, gammas: Sequence[float] = GAMMAS) -> None:
        super().__init__()
        self.weight, self.gammas = checked_weight("weight", weight), _checked(gammas)

    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        return {"risk": risks(logits, y).mean(), "penalty": self.now("weight") * mmd(z, gammas=self.gammas)}
