"""TiCo: transformation invariance and covariance contrast.  Zhu et al. 2022, arXiv:2206.10698; as in lightly.

    z_i of length 1
    C_t = beta C_(t-1) + (1 - beta) / n sum_i z_i z_i^T,     C_0 = 0, no gradient
    L   = 1 - 1/n sum_i <z_i, z'_i>  +  rho/n sum_i z_i^T C_t z_i

The second term keeps samples away from directions that were crowded in the last steps.  So the loss remembers C, which
is in its state_dict.  Calls in eval mode use C and do not change it.

In lightly, z' comes from a slow copy of the network, and C from the other view only.  Here all views count alike: C and
the second term are means over views.  lightly gives the same for TiCoLoss()(cat(z, z'), cat(z', z)).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group, Ranks
from reglet.losses.base import OnViews, pairs
from reglet.losses.product import product
from reglet.losses.recomputation import same_again
from reglet.losses.shortcut import plain, shortcut
from reglet.losses.unit_rows import unit
from reglet.schedules import Weight, checked_weight
from reglet.types import Scalar, Terms


def _contrast(u: Float[Tensor, "m d"], C: Float[Tensor, "d d"]) -> Scalar:
    """1/m sum_i u_i^T C u_i.  C is symmetric, so the gradient is 2/m u C."""

    def formula(u: Tensor) -> Tensor:
        return (product(u, C) * u).sum() / len(u)

    def kernel(u: Tensor, **_: object) -> tuple[Tensor, list[Tensor]]:
        along = u @ C
        value = torch.dot(along.view(-1), u.reshape(-1)) / len(u)
        return value, [along.mul_(2 / len(u))]

    return shortcut(formula, kernel, u, ranks=Ranks((len(u),)))


def _apart(u: Float[Tensor, "v n d"], compared: list[tuple[int, int]]) -> Scalar:
    """1 - 1/n sum_i <u_i, u'_i>, the mean over the pairs of views."""
    n, count = u.shape[1], len(compared)

    def formula(u: Tensor) -> Tensor:
        return 1 - torch.stack([(u[i] * u[j]).sum(dim=1).mean() for i, j in compared]).mean()

    def kernel(u: Tensor, **_: object) -> tuple[Tensor, list[Tensor]]:
        views = u.unbind()
        if len(views) == 2:
            value = (views[0] * views[1]).sum()  # which adds in pairs; a dot product of a million would lose digits
            return 1 - value / n, [u.flip(0).mul_(-1 / n)]
        value, grad = u.new_zeros(()), torch.zeros_like(u)
        for i, j in compared:
            value += (views[i] * views[j]).sum()
            grad[i] -= views[j]
            grad[j] -= views[i]
        return 1 - value / (n * count), [grad.div_(n * count)]

    return shortcut(formula, kernel, u, ranks=Ranks((n,)))


class TiCoLoss(OnViews):
    """beta: the part of the earlier covariance that is kept.  rho: weight of the covariance contrast.

    >>> loss = TiCoLoss(beta=0.5, rho=1.0)
    >>> [round(loss(torch.eye(4), torch.eye(4)).item(), 4) for _ in range(3)]  # C goes to I/4
    [0.125, 0.1875, 0.2188]
    """

    def __init__(
        self,
        *,
        beta: float = 0.9,
        rho: Weight = 8.0,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.below_one(beta=beta)
        self.beta, self.rho = beta, checked_weight("rho", rho)
        self._covariance = torch.zeros(0, 0)

    def get_extra_state(self) -> Tensor:
        return self._covariance

    def set_extra_state(self, state: Tensor) -> None:
        self._covariance = state.clone()

    @torch.compiler.disable  # it has a memory
    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        u = unit(z)
        rows = u.flatten(0, 1)
        keeps = self.training and plain(z)  # tensors of torch.func and fake tensors must not be kept
        C = same_again(self, lambda: self._next(rows.detach(), keep=True)) if keeps else self._next(rows.detach())
        apart = _apart(u, list(pairs(len(u), n_global)))
        return {"invariance": apart, "covariance": self.now("rho") * _contrast(rows, C)}

    def _next(self, u: Float[Tensor, "m d"], *, keep: bool = False) -> Float[Tensor, "d d"]:
        d = u.shape[1]
        if self._covariance.numel() and len(self._covariance) != d:
            raise ValueError(f"TiCoLoss remembers embeddings of {len(self._covariance)} features, got {d}")
        before = self._covariance.to(u) if self._covariance.numel() else u.new_zeros(d, d)
        C = torch.addmm(before, u.T, u, beta=self.beta, alpha=(1 - self.beta) / len(u))
        if keep:
            self._covariance = C
        return C
