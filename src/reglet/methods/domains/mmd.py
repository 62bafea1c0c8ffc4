"""Maximum mean discrepancy between domains.  Li et al., CVPR 2018; Gretton et al., JMLR 2012, for the statistic."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.methods.domains.base import OnDomains, risks
from reglet.types import Scalar, Terms

GAMMAS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def mmd(z: Sequence[Float[Tensor, "_ d"]], *, gammas: Sequence[float] = GAMMAS) -> Scalar:
    """Mean over pairs of domains of  mean k(z_i, z_i) + mean k(z_j, z_j) - 2 mean k(z_i, z_j).

    k(a, b) = sum_gamma exp(-gamma ||a - b||^2).  The kernels and the statistic, biased and so never negative, are
    DomainBed's.  Distances are taken directly: by norms and a product, float32 would not know a sample from itself at
    gamma = 1000.
    """
    rows = torch.cat(list(z))
    squared = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    k = torch.stack([(-gamma * squared).exp() for gamma in gammas]).sum(0)
    sizes = [len(each) for each in z]
    means = torch.block_diag(*(rows.new_full((1, n), 1 / n) for n in sizes))
    blocks = means @ k @ means.T  # mean k of every domain with every other
    i, j = torch.triu_indices(len(z), len(z), offset=1, device=rows.device)
    return (blocks.diagonal()[i] + blocks.diagonal()[j] - 2 * blocks[i, j]).mean()


class MMD(OnDomains):
    """1/E sum_e R_e + weight mmd(z)."""

    least_domains: ClassVar[int] = 2

    def __init__(self, *, weight: float = 1.0, gammas: Sequence[float] = GAMMAS) -> None:
        super().__init__()
        self.weight, self.gammas = weight, tuple(gammas)

    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        return {"risk": risks(logits, y).mean(), "penalty": self.weight * mmd(z, gammas=self.gammas)}
