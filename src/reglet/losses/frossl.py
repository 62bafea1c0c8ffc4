"""FroSSL: a small Frobenius norm of the normalised covariance.  Skean et al., ECCV 2024, arXiv:2310.02903; as in
lightly.

    Z_v with columns of length 1
    L = sum_v log |Z_v^T Z_v / tr|_F^2  +  weight sum_v V/n |Z_v - Zbar|^2        Zbar = mean_v Z_v

tr = d, because the columns have length 1.  log |.|_F^2 is minus the collision entropy of the spectrum.  Its minimum,
log 1/min(n, d), is reached when all eigenvalues are equal.  |Z^T Z|_F = |Z Z^T|_F, so the smaller matrix is computed.
Columns are not centred.
"""

from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.smaller_gram import log_unevenness
from reglet.losses.unit_rows import unit
from reglet.precision import in_float64
from reglet.schedules import Weight, checked_weight
from reglet.types import Scalar, Terms


def _unit_columns(z: Float[Tensor, "v n d"]) -> Float[Tensor, "v n d"]:
    """In float64 for few samples, where large terms of the loss cancel."""
    return unit(in_float64(z) if z.shape[1] < 8 else z, dim=1)


class FroSSL(OnViews):
    """The regularizer alone: the mean over views.

    >>> import torch
    >>> round(FroSSL()(torch.eye(4)).item(), 4)  # four equal eigenvalues: log 1/4
    -1.3863
    """

    least_views = 1

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        return {"frossl": (log_unevenness(_unit_columns(z)) / len(z)).to(z)}


class FroSSLLoss(OnViews):
    """weight: of the invariance.

    >>> import torch
    >>> round(FroSSLLoss()(torch.eye(4), torch.eye(4)).item(), 4)
    -2.7726
    """

    weighs: ClassVar[Mapping[str, str]] = {"weight": "invariance"}

    def __init__(
        self, *, weight: Weight = 1.0, gather: bool = False, group: Group = None, check_finite: bool = False
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        self.weight = checked_weight("weight", weight)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        u = _unit_columns(z)
        gap: Scalar = len(u) / u.shape[1] * (u - u.mean(dim=0)).square().sum()
        return {"frossl": log_unevenness(u).to(z), "invariance": self.now("weight") * gap.to(z)}
