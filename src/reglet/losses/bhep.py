"""BHEP: the distance to the standard normal by a kernel, without slices.  Henze and Wagner 1997, J. Multiv. Anal. 62.

The statistic of Baringhaus, Henze, Epps and Pulley, as in the manual of R's `mnt`, divided by n:

    T = 1/n^2 sum_ij exp(-b^2 |z_i - z_j|^2 / 2) - 2 (1 + b^2)^(-d/2) 1/n sum_i exp(-b^2 |z_i|^2 / (2 (1 + b^2)))
        + (1 + 2 b^2)^(-d/2)

The test standardizes the samples first.  Here they are not standardized, because mean and covariance should become
normal, too.  T is SIGReg's integral over the whole space instead of slices, with weight N(0, b^2 I).  It is also the
squared maximum mean discrepancy to N(0, I) for a Gaussian kernel of width 1 / b.  It is computed in float64, because
large terms cancel near the normal.

b = 1 / sqrt(d) if not given: at mnt's b = 1 and 128 features the kernel is 0 for every pair of samples.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.product import product
from reglet.precision import in_float64
from reglet.types import Scalar, Terms


def _apart(z: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """|z_i - z_j|^2, from centred rows to keep its digits."""
    zc = z - z.mean(dim=0)
    lengths = zc.square().sum(dim=1)
    apart = (lengths[:, None] + lengths[None] - 2 * product(zc, zc.T)).clamp_min(0)
    return apart.masked_fill(torch.eye(len(z), dtype=torch.bool, device=z.device), 0)


def _bhep(z: Float[Tensor, "n d"], b2: float) -> Scalar:
    d = z.shape[1]
    alone = torch.exp(z.square().sum(dim=1) * (-b2 / (2 * (1 + b2)))).mean()
    return torch.exp(-b2 / 2 * _apart(z)).mean() - 2 * (1 + b2) ** (-d / 2) * alone + (1 + 2 * b2) ** (-d / 2)


class BHEP(OnViews):
    """The mean over views.

    beta: b; 1 / sqrt(d) if not given.

    >>> z = torch.randn(256, 8)
    >>> bool(BHEP()(z) < BHEP()(2 * z)), bool(BHEP()(z) < BHEP()(0 * z))
    (True, True)
    """

    least_views = 1

    def __init__(
        self, *, beta: float | None = None, gather: bool = False, group: Group = None, check_finite: bool = False
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        if beta is not None:
            check.positive(beta=beta)
        self.beta = beta

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        beta = 1 / math.sqrt(z.shape[2]) if self.beta is None else self.beta
        return {"bhep": torch.stack([_bhep(view, beta**2) for view in in_float64(z).unbind()]).mean().to(z)}
