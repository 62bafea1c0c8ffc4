"""VICReg: variance, invariance, covariance.  Bardes, Ponce & LeCun, ICLR 2022, arXiv:2105.04906.

    s(Z, Z') = 1/n sum_i |z_i - z'_i|^2
    v(Z)     = 1/d sum_j max(0, gamma - sqrt(Var(z^j) + eps))               unbiased Var
    c(Z)     = 1/d sum_{i != j} C_ij^2,     C = 1/(n-1) sum_i (z_i - zbar)(z_i - zbar)^T
    L        = 25 s + 25 [v(Z) + v(Z')] + [c(Z) + c(Z')]

One name, several losses.  `variant` says which:

    official  the authors' code, and lightly: s also divided by d, v averaged over the two views, c summed (default)
    paper     the equations above
    solo      solo-learn: s also divided by d, v and c summed
    visreg    VISReg's comparison: all views as one batch, std + 1e-6, the hinge squared, no invariance

With more than two views, s is the mean over the pairs that contain a global view.  v and c are means over views, times
two where the formula sums over the two views.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.check import choice, positive
from reglet.dist import Group, Ranks, sum_over_ranks
from reglet.losses.base import OnViews, pairs, separate
from reglet.losses.cross_moments import cross_moments
from reglet.losses.formula import formula
from reglet.losses.shortcut import whole
from reglet.schedules import Weight, checked_weight
from reglet.types import Scalar, Terms

Variant = Literal["official", "paper", "solo", "visreg"]


@formula("v n d")
def vicreg_regularizers(z: Float[Tensor, "v n d"], *, gamma: float = 1.0, eps: float = 1e-4) -> tuple[Scalar, Scalar]:
    """v and c, each the mean over views.

    >>> v, c = vicreg_regularizers(torch.ones(1, 16, 4))  # collapsed: no deviation, nothing to correlate
    >>> round(v.item(), 4), c.item()
    (0.99, 0.0)
    """
    positive(gamma=gamma, eps=eps)
    return _regularizers(list(z.unbind()), Ranks((z.shape[1],)), gamma, eps)


def _regularizers(views: list[Tensor], ranks: Ranks, gamma: float, eps: float) -> tuple[Scalar, Scalar]:
    n, d = ranks.samples, views[0].shape[1]
    variance, energy = cross_moments(views, [(i, i) for i in range(len(views))], m=n - 1, ranks=ranks)
    return F.relu(gamma - (variance + eps).sqrt()).mean(), energy / d


class VICReg(OnViews):
    """The regularizer alone: variance * v(Z) + covariance * c(Z), the mean over one or more views.

    With the paper's weights it is the part of L that each view has.

    >>> round(VICReg()(torch.ones(16, 4)).item(), 4)
    24.75
    """

    least_views = 1

    def __init__(
        self,
        *,
        variance: Weight = 25.0,
        covariance: Weight = 1.0,
        gamma: float = 1.0,
        eps: float = 1e-4,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        positive(gamma=gamma, eps=eps)
        self.variance = checked_weight("variance", variance)
        self.covariance = checked_weight("covariance", covariance)
        self.gamma, self.eps = gamma, eps

    def compute_on_ranks(self, z: Tensor | list[Tensor], n_global: int, ranks: Ranks) -> Terms:
        v, c = _regularizers(separate(z), ranks, self.gamma, self.eps)
        return {"variance": self.now("variance") * v, "covariance": self.now("covariance") * c}


class VICRegLoss(OnViews):
    """invariance, variance, covariance: weights of the three terms.

    >>> import torch
    >>> constant = torch.ones(2, 16, 4)
    >>> round(VICRegLoss()(constant).item(), 4), round(VICRegLoss(variant="solo")(constant).item(), 4)
    (24.75, 49.5)
    """

    def __init__(
        self,
        *,
        invariance: Weight = 25.0,
        variance: Weight = 25.0,
        covariance: Weight = 1.0,
        gamma: float = 1.0,
        eps: float = 1e-4,
        variant: Variant = "official",
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        choice("variant", variant, get_args(Variant))
        positive(gamma=gamma, eps=eps)
        self.invariance = checked_weight("invariance", invariance)
        self.variance = checked_weight("variance", variance)
        self.covariance = checked_weight("covariance", covariance)
        self.gamma, self.eps, self.variant = gamma, eps, variant

    def compute_on_ranks(self, z: Tensor | list[Tensor], n_global: int, ranks: Ranks) -> Terms:
        views = separate(z)
        if self.variant == "visreg":  # every rank computes the whole batch
            return self._pooled(torch.cat(list(whole(views, ranks))))
        d = views[0].shape[1]
        gaps = [(views[i] - views[j]).square().sum() for i, j in pairs(len(views), n_global)]
        s = torch.stack(gaps).mean() / (ranks.samples * d)
        s = sum_over_ranks(s, group=ranks.group) if ranks.size > 1 else s
        v, c = _regularizers(views, ranks, self.gamma, self.eps)
        summed_over_d = d if self.variant == "paper" else 1
        summed_over_views = 1 if self.variant == "official" else 2
        return {
            "invariance": self.now("invariance") * summed_over_d * s,
            "variance": self.now("variance") * summed_over_views * v,
            "covariance": self.now("covariance") * 2 * c,
        }

    def _pooled(self, z: Float[Tensor, "n d"]) -> Terms:
        n, d = z.shape
        std = torch.linalg.vector_norm(z - z.mean(dim=0), dim=0) / (n - 1) ** 0.5 + 1e-6
        _, energy = cross_moments([z], [(0, 0)], m=n - 1, ranks=Ranks((n,)))
        return {
            "variance": self.now("variance") * F.relu(self.gamma - std).square().mean(),
            "covariance": self.now("covariance") * energy / d,
        }
