"""W-MSE: whitened views, near each other.  Ermolov et al., ICML 2021, arXiv:2007.06346; code: htdt/self-supervised.

    S   = (1 - eps) cov(Z) + eps I,  cov unbiased;   S = A A^T  by Cholesky
    w_i = A^-1 (z_i - mean),  then of length 1
    L   = mean over pairs of views and samples of |w_i - w'_i|^2 = 2 - 2 <w_i, w'_i>

Each view is whitened by itself, so collapse is out of reach and nothing else is needed.  cov must have full rank, which
takes n > d: the paper whitens 2d samples or more at a time.  eps = 0 is the paper's; 1e-4 here, so that the loss exists
where some feature is dead, and for n <= d.

The authors' code and lightly cut the batch at random into parts of w_size and whiten each.  Here the batch is one part.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group
from reglet.losses.base import OnViews, pairs
from reglet.losses.product import product
from reglet.losses.smaller_gram import cholesky, finite
from reglet.losses.unit_rows import unit
from reglet.precision import in_float64
from reglet.types import Terms


def _whitened(z: Float[Tensor, "n d"], eps: float) -> Float[Tensor, "d n"]:
    """A^-1 (z - mean), a sample a column."""
    n, d = z.shape
    zc = in_float64(z)
    zc = zc - zc.mean(dim=0)
    cov, _ = finite(product(zc.T, zc) * ((1 - eps) / (n - 1)))
    root = cholesky(cov + eps * torch.eye(d, dtype=cov.dtype, device=cov.device))
    return torch.linalg.solve_triangular(root, zc.T, upper=False)


class WMSELoss(OnViews):
    """eps: of the covariance, how much is replaced by I.  0: the paper's, for n > d and no dead feature.

    >>> z = torch.randn(2, 64, 8)
    >>> bool(WMSELoss()(z[0], z[0]) < 1e-5), bool(WMSELoss()(z) > 1)
    (True, True)
    """

    def __init__(
        self, *, eps: float = 1e-4, gather: bool = False, group: Group = None, check_finite: bool = False
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.below_one(eps=eps)
        self.eps = eps

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        _, n, d = z.shape
        if self.eps == 0 and n <= d:
            raise ValueError(f"WMSELoss with eps=0 needs more samples than features, got {n} and {d}")
        w = [unit(_whitened(view, self.eps), dim=0) for view in z.unbind()]
        apart = [(w[i] - w[j]).square().sum(dim=0).mean() for i, j in pairs(len(w), n_global)]
        return {"invariance": torch.stack(apart).mean().to(z)}
