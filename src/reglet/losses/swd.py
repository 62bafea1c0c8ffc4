"""Sliced Wasserstein distance to the standard normal, plain: VISReg's ancestor and baseline.  arXiv:2606.02572.

    L = mean_{v,i,k} (sort_i(z w_k) - Phi^-1(u_i))^2,      u_i = i/(n+1), clamped to [1e-4, 1 - 1e-4]

No centring and no scaling: location, scale and shape are one term.
"""

from functools import partial

from jaxtyping import Float
from torch import Tensor

from reglet.losses.base import OnViews
from reglet.losses.invariance import balanced, fraction
from reglet.losses.sliced import given, sliced_mean, sliced_sum
from reglet.losses.slices import Slices
from reglet.losses.wasserstein import ToQuantiles, normal_quantiles
from reglet.types import Scalar, Terms


def sliced_wasserstein(z: Float[Tensor, "v n d"], directions: Float[Tensor, "k d"], *, clamp: float = 1e-4) -> Scalar:
    """mean_{v,i,k} (sort_i(z w_k) - q_i)^2 for the given unit directions."""
    q = normal_quantiles(z.shape[1], "weibull", clamp, z.device, z.dtype)
    return sliced_sum(z, given(directions), partial(ToQuantiles, q)) / len(directions)


class SWD(OnViews):
    """The regularizer.

    clamp: quantile positions stay this far from 0 and 1.  It changes the targets for n > 1/clamp only.
    shared_slices: the same directions on all ranks.  By default W ranks average over W * slices directions.
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
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, check_finite=check_finite)
        if not 0 <= clamp < 0.5:
            raise ValueError(f"clamp must lie in [0, 0.5), got {clamp}")
        self.clamp = clamp
        self.slices = Slices(slices, shared=shared_slices, seed=seed)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        q = normal_quantiles(z.shape[1], "weibull", self.clamp, z.device, z.dtype)
        return {"swd": sliced_mean(z, self.slices, partial(ToQuantiles, q), gathered=self.gather)}


class SWDLoss(OnViews):
    """`lam * SWD + (1 - lam) * invariance`; 0.6 is the weight that VISReg's ablations gave it."""

    def __init__(
        self,
        *,
        lam: float = 0.6,
        slices: int = 4096,
        clamp: float = 1e-4,
        shared_slices: bool = False,
        seed: int = 0,
        gather: bool = False,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, check_finite=check_finite)
        self.lam = fraction(lam)
        self.regularizer = SWD(slices=slices, clamp=clamp, shared_slices=shared_slices, seed=seed, gather=gather)

    @property
    def slices(self) -> Slices:
        return self.regularizer.slices

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        return balanced(self.lam, self.regularizer.compute(z, n_global), z, n_global)
