"""The plain sliced Wasserstein distance to the standard normal, VISReg's baseline.  arXiv:2606.02572.

    L = mean_{v,i,k} (sort_i(z w_k) - Phi^-1(u_i))^2,      u_i = i/(n+1), clamped to [1e-4, 1 - 1e-4]

The embedding is neither centred nor scaled: one term holds location, scale and shape.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.formula import formula
from reglet.losses.invariance import WithInvariance, takes_arguments_of
from reglet.losses.sliced import sliced_mean, sliced_sum
from reglet.losses.slices import Given, Slices
from reglet.losses.wasserstein import ToQuantiles, normal_quantiles
from reglet.schedules import Weight
from reglet.types import Scalar, Terms


@formula("v n d", "k d")
def sliced_wasserstein(z: Float[Tensor, "v n d"], directions: Float[Tensor, "k d"], *, clamp: float = 1e-4) -> Scalar:
    """mean_{v,i,k} (sort_i(z w_k) - q_i)^2 for the given unit directions.

    >>> import torch
    >>> z = torch.zeros(1, 3, 2)  # against the quantiles -0.674, 0, 0.674
    >>> round(sliced_wasserstein(z, torch.eye(2)).item(), 4)
    0.3033
    """
    check.between(0, 0.499, clamp=clamp)
    to_normal = ToQuantiles(normal_quantiles(z.shape[1], clamp=clamp, like=z))
    return sliced_sum(z, Given(directions), to_normal) / len(directions)


class SWD(OnViews):
    """The regularizer.

    clamp: quantile positions stay this far from 0 and 1.  That changes the targets only for n > 1/clamp.
    shared_slices: all ranks use the same directions.  Otherwise W ranks average over W * slices directions.

    >>> import torch
    >>> bool(SWD(slices=64)(torch.randn(1, 64, 8)) < SWD(slices=64)(torch.zeros(1, 64, 8)))
    True
    """

    least_views = 1

    def __init__(
        self,
        *,
        slices: int = 4096,
        clamp: float = 1e-4,
        shared_slices: bool = False,
        seed: int = 0,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.between(0, 0.499, clamp=clamp)
        self.clamp = clamp
        self.slices = Slices(slices, shared=shared_slices, seed=seed)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        to_normal = ToQuantiles(normal_quantiles(z.shape[1], clamp=self.clamp, like=z))
        return {"swd": sliced_mean(z, self.slices, to_normal, gathered=self.gather, group=self.group)}


class SWDLoss(WithInvariance):
    """`lam * SWD + (1 - lam) * invariance`.

    lam: 0.6 as in VISReg's ablations.  The other arguments are SWD's.

    >>> import torch
    >>> list(SWDLoss(slices=64).terms(*torch.randn(2, 32, 8)))
    ['swd', 'invariance']
    """

    @takes_arguments_of(SWD)
    def __init__(self, *, lam: Weight = 0.6, **regularizer: Any) -> None:
        super().__init__(SWD(**regularizer), lam=lam)
