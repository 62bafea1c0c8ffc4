"""MMCR: maximum manifold capacity.  Yerxa et al., NeurIPS 2023, arXiv:2303.03307; code: ThomasYerxa/mmcr.

    z_bv on the unit sphere,  Z_b = (z_b1 ... z_bV),  c_b = mean_v z_bv,  C = (c_1 ... c_n)
    L = weight / n sum_b |Z_b|_* - |C|_*                   |.|_*: nuclear norm, the sum of the singular values

Centroids should fill the space, and the views of a sample should be one point.  With weight = 0 the second follows from
the first, because a centroid is long only if its views agree.  lightly does not normalise (`normalize=False`); then L
has no minimum.

Both norms come from Gram matrices, n x n or d x d for |C|_* and v x v for |Z_b|_*, not from an SVD.
"""

from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.smaller_gram import mean_nuclear_norm, nuclear_norm
from reglet.losses.unit_rows import unit
from reglet.schedules import Weight, checked_weight
from reglet.types import Terms


class MMCRLoss(OnViews):
    """weight: the paper's lambda.  normalize: scale rows to length 1.

    >>> import torch
    >>> views = torch.eye(4).expand(2, 4, 4)
    >>> round(MMCRLoss(weight=0.0)(views).item(), 4), round(MMCRLoss(weight=1.0)(views).item(), 4)
    (-4.0, -2.5858)
    """

    weighs: ClassVar[Mapping[str, str]] = {"weight": "invariance"}

    def __init__(
        self,
        *,
        weight: Weight = 5e-3,
        normalize: bool = True,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.flag(normalize=normalize)
        self.weight, self.normalize = checked_weight("weight", weight), normalize

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        z = unit(z) if self.normalize else z
        return {"capacity": -nuclear_norm(z.mean(dim=0)), "invariance": self.now("weight") * mean_nuclear_norm(z)}
