"""Radial-VCReg: VICReg's variance and covariance, and vectors as long as normal ones.  Kuang et al., arXiv:2602.14272.

    r_i = |z_i|,  which has a chi distribution for normal z
    L   = 25 v(Z) + c(Z) + cross_entropy 1/n sum_i (r_i^2 / 2 - (d - 1) log r_i)
          - entropy 1/(n - m) sum_i log((n + 1) / m (r_(i+m) - r_(i)) + eps),      m = round(sqrt(n))

v and c are those of `vicreg.py`.  The last two terms are the Kullback-Leibler divergence of the lengths from chi, up to
a constant.  The entropy is estimated from the gaps of the sorted lengths.  Formula and weights (25, 1, 100, 100, eps
1e-6) are those of the authors' code, YilunKuang/RadialVCReg, where they serve points in the plane.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.check import positive
from reglet.dist import Group, Ranks, concat_over_ranks
from reglet.losses.base import OnViews, separate
from reglet.losses.vicreg import _regularizers
from reglet.precision import in_float64
from reglet.schedules import Weight, checked_weight
from reglet.types import Scalar, Terms


def _radial(z: Float[Tensor, "n d"], eps: float) -> tuple[Scalar, Scalar]:
    """Cross-entropy and entropy of the lengths, in float64 because gaps of lengths are small."""
    n, d = z.shape
    r = torch.linalg.vector_norm(in_float64(z), dim=1).clamp_min(eps)
    m = round(n**0.5)
    ordered = r.sort().values
    gaps = (ordered[m:] - ordered[: n - m]) * ((n + 1) / m)
    return (r.square() / 2 - (d - 1) * r.log()).mean().to(z), (gaps + eps).log().mean().to(z)


class RadialVCReg(OnViews):
    """variance, covariance, cross_entropy, entropy: weights.  The mean over views.

    >>> list(RadialVCReg().terms(torch.randn(16, 4)))
    ['variance', 'covariance', 'cross_entropy', 'entropy']
    """

    least_views = 1

    def __init__(
        self,
        *,
        variance: Weight = 25.0,
        covariance: Weight = 1.0,
        cross_entropy: Weight = 100.0,
        entropy: Weight = 100.0,
        gamma: float = 1.0,
        eps: float = 1e-6,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        positive(gamma=gamma, eps=eps)
        self.variance = checked_weight("variance", variance)
        self.covariance = checked_weight("covariance", covariance)
        self.cross_entropy = checked_weight("cross_entropy", cross_entropy)
        self.entropy = checked_weight("entropy", entropy)
        self.gamma, self.eps = gamma, eps

    def compute_on_ranks(self, z: Tensor | list[Tensor], n_global: int, ranks: Ranks) -> Terms:
        views = separate(z)
        v, c = _regularizers(views, ranks, self.gamma, self.eps)
        everyone = concat_over_ranks(torch.stack(views), 1, ranks=ranks)
        found = [_radial(view, self.eps) for view in everyone.unbind()]
        crossed, spread = (torch.stack(each).mean() for each in zip(*found, strict=True))
        return {
            "variance": self.now("variance") * v,
            "covariance": self.now("covariance") * c,
            "cross_entropy": self.now("cross_entropy") * crossed,
            "entropy": -self.now("entropy") * spread,
        }
