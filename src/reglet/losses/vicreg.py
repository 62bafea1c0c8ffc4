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

Beyond two views, s is the mean over the pairs that contain a global view, and v and c are means over views, times the
two of the formula where it sums.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.losses.base import OnViews, pairs
from reglet.losses.cross_moments import cross_moments
from reglet.types import Scalar, Terms

Variant = Literal["official", "paper", "solo", "visreg"]


def vicreg_regularizers(z: Float[Tensor, "v n d"], *, gamma: float = 1.0, eps: float = 1e-4) -> tuple[Scalar, Scalar]:
    """v and c, each the mean over views."""
    v, n, d = z.shape
    diagonal, energy = cross_moments(z - z.mean(dim=1, keepdim=True))
    std = (diagonal / (n - 1) + eps).sqrt()
    return F.relu(gamma - std).mean(), energy / (v * d * (n - 1) ** 2)


class VICRegLoss(OnViews):
    """
    >>> import torch
    >>> constant = torch.ones(2, 16, 4)
    >>> round(VICRegLoss()(constant).item(), 4), round(VICRegLoss(variant="solo")(constant).item(), 4)
    (24.75, 49.5)
    """

    def __init__(
        self,
        *,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        gamma: float = 1.0,
        eps: float = 1e-4,
        variant: Variant = "official",
        gather: bool = False,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, check_finite=check_finite)
        if variant not in get_args(Variant):
            raise ValueError(f"variant must be one of {get_args(Variant)}, got {variant!r}")
        self.invariance, self.variance, self.covariance = invariance, variance, covariance
        self.gamma, self.eps, self.variant = gamma, eps, variant

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        if self.variant == "visreg":
            return self._pooled(z.flatten(0, 1))
        d, views = z.shape[-1], z.unbind()
        s = torch.stack([(views[i] - views[j]).square().mean() for i, j in pairs(len(z), n_global)]).mean()
        v, c = vicreg_regularizers(z, gamma=self.gamma, eps=self.eps)
        summed_over_d = d if self.variant == "paper" else 1
        summed_over_views = 1 if self.variant == "official" else 2
        return {
            "invariance": self.invariance * summed_over_d * s,
            "variance": self.variance * summed_over_views * v,
            "covariance": self.covariance * 2 * c,
        }

    def _pooled(self, z: Float[Tensor, "n d"]) -> Terms:
        n, d = z.shape
        zc = z - z.mean(dim=0)
        std = torch.linalg.vector_norm(zc, dim=0) / (n - 1) ** 0.5 + 1e-6
        _, energy = cross_moments(zc.unsqueeze(0))
        return {
            "variance": self.variance * F.relu(self.gamma - std).square().mean(),
            "covariance": self.covariance * energy / (d * (n - 1) ** 2),
        }
