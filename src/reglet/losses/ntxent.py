"""NT-Xent, the loss of SimCLR.  Chen et al., ICML 2020, arXiv:2002.05709, eq. 1.

    l(i, j) = -log exp(sim(z_i, z_j)/tau) / sum_{k != i} exp(sim(z_i, z_k)/tau),      L = mean over the 2n rows

With more than two views, L is the mean of the two-view loss over pairs of views.  (solo-learn sums all positives inside
the log, which is another loss.)
"""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group, Ranks
from reglet.losses.base import OnViews, pairs, separate
from reglet.losses.formula import formula
from reglet.losses.ntxent_kernel import LEAST_TEMPERATURE, ntxent_kernel
from reglet.losses.product import product
from reglet.losses.shortcut import shortcut
from reglet.types import Scalar, Terms


@formula("n d", "n d")
def ntxent(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], *, temperature: float = 0.5) -> Scalar:
    """mean_i log(1 + sum_{k != i,j} exp(s_ik - s_ij)), which is eq. 1.

    This form keeps the digits of the gradient when the positive wins by far.  There float32 rounds the gradient of a
    cross-entropy, p_j - 1, to 0.

    >>> z = torch.eye(4)
    >>> round(ntxent(z, z, temperature=0.5).item(), 4)
    0.5944
    """
    check.positive(temperature=temperature)
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

    def __init__(
        self, *, temperature: float = 0.5, gather: bool = False, group: Group = None, check_finite: bool = False
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.positive(temperature=temperature)
        self.temperature = temperature

    def compute_on_ranks(self, z: Tensor | list[Tensor], n_global: int, ranks: Ranks) -> Terms:
        views = separate(z)
        compared = list(pairs(len(views), n_global))

        def formula(*views: Tensor) -> Tensor:
            losses = [ntxent(views[i], views[j], temperature=self.temperature) for i, j in compared]
            return torch.stack(losses).mean()

        kernel = partial(ntxent_kernel, compared=compared, temperature=self.temperature)
        fast = self.temperature >= LEAST_TEMPERATURE
        return {"contrast": shortcut(formula, kernel if fast else None, *views, ranks=ranks)}
