"""EMP-SSL and its total coding rate.  Tong et al. 2023, arXiv:2304.03977; code: tsb0601/EMP-SSL.

    R(Z) = 1/2 log det(I + d / (n eps) Z^T Z)                rows of length 1
    L    = -mean_v R(Z_v) - weight mean_{v,i} cos(z_vi, mean_v z_vi)

The paper has eps^2 in place of eps.  The authors' code has eps = 0.2, and so has this file.  lightly 1.6 adds +R, so
minimising it contracts the embeddings; and it does not normalise (`normalize=False`).

det(I + a Z^T Z) = det(I + a Z Z^T), so the smaller matrix is factored.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.smaller_gram import log_det
from reglet.losses.unit_rows import unit
from reglet.schedules import Weight, checked_weight
from reglet.types import Scalar, Terms


def _rate(z: Float[Tensor, "v n d"], eps: float) -> Scalar:
    v, n, d = z.shape
    return torch.stack([log_det(view, d / (n * eps)) for view in z.unbind()]).sum() / (2 * v)


class CodingRate(OnViews):
    """-R(Z) alone, the mean over views.

    >>> round(CodingRate(eps=1.0)(torch.eye(4)).item(), 4)  # -1/2 log 2^4
    -1.3863
    """

    least_views = 1

    def __init__(
        self,
        *,
        eps: float = 0.2,
        normalize: bool = True,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.positive(eps=eps)
        check.flag(normalize=normalize)
        self.eps, self.normalize = eps, normalize

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        return {"coding_rate": -_rate(unit(z) if self.normalize else z, self.eps)}


class EMPSSLLoss(OnViews):
    """weight: of the invariance.

    >>> round(EMPSSLLoss(eps=1.0, weight=0.0)(torch.eye(4), torch.eye(4)).item(), 4)
    -1.3863
    """

    weighs: ClassVar[Mapping[str, str]] = {"weight": "invariance"}

    def __init__(
        self,
        *,
        weight: Weight = 200.0,
        eps: float = 0.2,
        normalize: bool = True,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.positive(eps=eps)
        check.flag(normalize=normalize)
        self.weight, self.eps, self.normalize = checked_weight("weight", weight), eps, normalize

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        u = unit(z)
        z = u if self.normalize else z
        apart = (u - unit(z.mean(dim=0))).square().sum() / (2 * u[..., 0].numel())  # cos = 1 - |u - u'|^2 / 2
        return {"coding_rate": -_rate(z, self.eps), "invariance": -self.now("weight") * (1 - apart)}
