"""NT-Xent, the loss of SimCLR.  Chen et al., ICML 2020, arXiv:2002.05709, eq. 1.

    l(i, j) = -log exp(sim(z_i, z_j)/tau) / sum_{k != i} exp(sim(z_i, z_k)/tau),      L = mean over the 2n rows

Beyond two views, the mean over pairs of views of the two-view loss (solo-learn sums all positives inside the log, which
is another loss).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.losses.base import OnViews, pairs
from reglet.losses.product import product
from reglet.types import Scalar, Terms


def ntxent(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], *, temperature: float = 0.5) -> Scalar:
    """mean_i log(1 + sum_{k != i,j} exp(s_ik - s_ij)): eq. 1, in a form whose gradient keeps its digits when the
    positive wins by far; that of a cross-entropy is p_j - 1, which float32 rounds to nothing there.
    """
    n = len(z0)
    rows = F.normalize(torch.cat([z0, z1]), dim=1, eps=1e-8)
    s = product(rows, rows.T) / temperature
    positive = torch.cat([s.diagonal(n), s.diagonal(-n)])
    no_negative = torch.eye(n, dtype=torch.bool, device=s.device).repeat(2, 2)  # the row itself, and its positive
    gaps = (s - positive[:, None]).masked_fill(no_negative, -torch.inf)
    return torch.logaddexp(gaps.logsumexp(dim=1), s.new_zeros(())).mean()


class NTXentLoss(OnViews):
    """temperature: 0.5 as in lightly and SimCLR's CIFAR runs; 0.1 to 0.2 for ImageNet.

    >>> import torch
    >>> round(NTXentLoss()(torch.ones(2, 8, 4)).item(), 4)  # all equal: log(2n - 1)
    2.7081
    """

    def __init__(self, *, temperature: float = 0.5, gather: bool = False, check_finite: bool = False) -> None:
        super().__init__(gather=gather, check_finite=check_finite)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        views = z.unbind()
        losses = [ntxent(views[i], views[j], temperature=self.temperature) for i, j in pairs(len(z), n_global)]
        return {"contrast": torch.stack(losses).mean()}
