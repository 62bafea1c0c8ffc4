"""W-MSE draws whitened views together.  Ermolov et al., ICML 2021, arXiv:2007.06346; code: htdt/self-supervised.

    S   = (1 - eps) cov(Z) + eps I,  cov unbiased;   S = A A^T  by Cholesky
    w_i = A^-1 (z_i - mean),  scaled to length 1
    L   = mean over pairs of views and samples of |w_i - w'_i|^2 = 2 - 2 <w_i, w'_i>

Each view is whitened by itself, so it cannot collapse, and no other term is needed.  cov must have full rank, which
takes n > d: the paper whitens at least 2d samples at a time.  The paper has eps = 0.  Here it is 1e-4, so that the loss
also exists with a dead feature and for n <= d.

The authors' code and lightly cut the batch at random into parts of w_size and whiten each part.  Here the whole batch
is whitened.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.check import readable
from reglet.dist import Group, Ranks
from reglet.losses.base import OnViews, pairs
from reglet.losses.product import product
from reglet.losses.shortcut import by_autograd, shortcut
from reglet.losses.smaller_gram import cholesky, finite
from reglet.losses.unit_rows import is_usual, unit
from reglet.precision import in_float64
from reglet.types import Scalar, Terms


def _whitened(z: Float[Tensor, "n d"], eps: float) -> tuple[Float[Tensor, "d n"], Float[Tensor, "d d"]]:
    """A^-1 (z - mean), one column for each sample; and A."""
    n, d = z.shape
    zc = in_float64(z)
    zc = zc - zc.mean(dim=0)
    cov, _ = finite(product(zc.T, zc) * ((1 - eps) / (n - 1)))
    root = cholesky(cov + eps * torch.eye(d, dtype=cov.dtype, device=cov.device))
    return torch.linalg.solve_triangular(root, zc.T, upper=False), root


def _wmse(views: Sequence[Float[Tensor, "n d"]], eps: float, compared: Sequence[tuple[int, int]]) -> Scalar:
    """L with its gradient.  For g = dL/dW and W = A^-1 Zc^T, the derivative of Cholesky's factor gives

    dL/dZc^T = A^-T [ g - (1 - eps)/(n - 1) (P + P^T) W ],      P = lower triangle of g W^T, with half of its diagonal
    """

    def formula(*views: Tensor) -> Tensor:
        w = [unit(_whitened(view, eps)[0], dim=0) for view in views]
        apart = [(w[i] - w[j]).square().sum(dim=0).mean() for i, j in compared]
        return torch.stack(apart).mean().to(views[0])

    def kernel(*views: Tensor, gradient: bool, **_: object) -> tuple[Tensor, list[Tensor]]:
        n = len(views[0])
        white, roots = zip(*(_whitened(view, eps) for view in views), strict=True)
        lengths = [torch.linalg.vector_norm(w, dim=0) for w in white]
        if not is_usual(torch.stack(lengths)):
            return by_autograd(formula, *views)
        u = [w / length for w, length in zip(white, lengths, strict=True)]
        du = [torch.zeros_like(w) for w in white]
        value = torch.zeros_like(lengths[0][0])
        for i, j in compared:
            apart = u[i] - u[j]
            value += apart.square().sum() / (n * len(compared))
            du[i].add_(apart, alpha=2 / (n * len(compared)))
            du[j].sub_(apart, alpha=2 / (n * len(compared)))
        if not gradient:
            return value.to(views[0]), []
        return value.to(views[0]), [
            _gradient(*each, eps).to(views[0]) for each in zip(white, roots, lengths, u, du, strict=True)
        ]

    return shortcut(formula, kernel if readable(views[0]) else None, *views, ranks=Ranks((len(views[0]),)))


def _gradient(w: Tensor, root: Tensor, length: Tensor, u: Tensor, g: Tensor, eps: float) -> Float[Tensor, "n d"]:
    """From du to dz.  Overwrites `g`."""
    g.addcmul_(u, torch.linalg.vecdot(u, g, dim=0), value=-1).div_(length)
    both = (g @ w.T).tril_()
    both.diagonal().mul_(0.5)
    g.addmm_(both + both.T, w, alpha=-(1 - eps) / (w.shape[1] - 1))
    dz = torch.linalg.solve_triangular(root.T, g, upper=True).T
    return dz - dz.mean(dim=0)


class WMSELoss(OnViews):
    """eps: the part of the covariance that is replaced by I.  The paper's 0 needs n > d and no dead feature.

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
        return {"invariance": _wmse(z.unbind(), self.eps, list(pairs(len(z), n_global)))}
