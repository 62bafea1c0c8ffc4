"""Barlow Twins.  Zbontar et al., ICML 2021, arXiv:2103.03230.

    C = BN(Z)^T BN(Z') / n                  BN: per feature over the batch, biased variance, eps inside the root
    L = sum_i (C_ii - 1)^2 + weight sum_{i != j} C_ij^2

`variant="official"` is the paper and its code.  solo-learn multiplies the whole by 0.025; lightly's weight is 0.005.
On several ranks the authors sum C in place, which leaves 1/W of the gradient.  With `gather`, ours is the loss of the
whole batch, statistics included.  `variant="visreg"` is VISReg's comparison: unbiased std + 1e-6, neighbouring views
only, and a lone view is compared with itself.  With more than two views the loss is the mean over pairs.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.check import choice, positive
from reglet.dist import Group, Ranks
from reglet.losses.base import OnViews, pairs, separate
from reglet.losses.cross_moments import Pairs, cross_moments
from reglet.losses.formula import formula
from reglet.losses.shortcut import whole
from reglet.schedules import Weight, checked_weight
from reglet.types import Scalar, Terms

Variant = Literal["official", "visreg"]


@formula("n d", "n d")
def barlow_twins(
    z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], *, eps: float = 1e-5, variant: Variant = "official"
) -> tuple[Scalar, Scalar]:
    """sum_i (C_ii - 1)^2 and sum_{i != j} C_ij^2, unweighted.

    >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> [round(term.item(), 2) for term in barlow_twins(z, -z)]  # each feature correlates with itself by -1, not by 1
    [8.0, 0.0]
    """
    choice("variant", variant, get_args(Variant))
    positive(eps=eps)
    return _mean_over_pairs([z0, z1], [(0, 1)], Ranks((len(z0),)), eps, variant)


def _mean_over_pairs(
    views: list[Tensor], compared: Pairs, ranks: Ranks, eps: float, variant: Variant
) -> tuple[Scalar, Scalar]:
    n = ranks.samples
    if variant == "official":
        diagonal, off = cross_moments(views, compared, m=n, ranks=ranks, eps=eps)
    else:  # every rank computes the whole batch
        unbiased = [_unbiased(z) for z in whole(views, ranks)]
        diagonal, off = cross_moments(unbiased, compared, m=n, ranks=Ranks((n,)))
    on = F.mse_loss(diagonal, torch.ones_like(diagonal), reduction="sum")
    return (on if len(compared) == 1 else on / len(compared)), off


def _unbiased(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    zc = z - z.mean(dim=0)
    return zc / (torch.linalg.vector_norm(zc, dim=0) / (len(z) - 1) ** 0.5 + 1e-6)


class BarlowTwinsLoss(OnViews):
    """
    >>> import torch
    >>> BarlowTwinsLoss()(torch.ones(2, 16, 4)).item()  # constants: C = 0
    4.0
    """

    def __init__(
        self,
        *,
        weight: Weight = 0.0051,
        eps: float = 1e-5,
        variant: Variant = "official",
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        choice("variant", variant, get_args(Variant))
        positive(eps=eps)
        self.weight, self.eps, self.variant = checked_weight("weight", weight), eps, variant
        self.least_views = 1 if variant == "visreg" else 2  # that one compares a lone view with itself

    def compute_on_ranks(self, z: Tensor | list[Tensor], n_global: int, ranks: Ranks) -> Terms:
        v, views = len(z), separate(z)
        if self.variant == "official":
            compared = list(pairs(v, n_global))
        else:
            compared = [(i, i + 1) for i in range(v - 1)] or [(0, 0)]
        on, off = _mean_over_pairs(views, compared, ranks, self.eps, self.variant)
        return {"invariance": on, "redundancy": self.now("weight") * off}
