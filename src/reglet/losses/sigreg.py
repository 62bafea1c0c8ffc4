"""SIGReg, the sliced Epps-Pulley test of normality, and LeJEPA.  Balestriero & LeCun 2025, arXiv:2511.08544.

SIGReg = mean over views and slices of T(z w), with the test T of `epps_pulley.py`
LeJEPA = lam SIGReg + (1 - lam) L_inv
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.epps_pulley import EppsPulley
from reglet.losses.formula import formula
from reglet.losses.invariance import WithInvariance, takes_arguments_of
from reglet.losses.sliced import sliced_mean, sliced_sum
from reglet.losses.slices import Given, Slices
from reglet.schedules import Weight
from reglet.types import Scalar, Terms


@formula("v n d", "k d")
def epps_pulley(
    z: Float[Tensor, "v n d"], directions: Float[Tensor, "k d"], *, knots: int = 17, t_max: float = 3.0
) -> Scalar:
    """mean_{v,k} T(z w_k) for the given unit directions.

    >>> import torch
    >>> z = torch.randn(1, 256, 8)
    >>> bool(epps_pulley(z, torch.eye(8)) < epps_pulley(0 * z, torch.eye(8)))
    True
    """
    return sliced_sum(z, Given(directions), EppsPulley(knots, t_max)) / len(directions)


class SIGReg(OnViews):
    """The regularizer.  T has a factor n, so its gradient does not depend on the batch size.  VISReg has no such
    factor.

    knots, t_max: of the quadrature.
    shared_slices: all ranks use the same directions, as in the authors' code.  With `gather`, ranks then share the
        work.  Otherwise W ranks average over W * slices directions.

    >>> import torch
    >>> bool(SIGReg(slices=64)(torch.zeros(2, 8, 4)).isclose(torch.tensor(8 * 0.40205), rtol=1e-4))
    True
    """

    least_views = 1

    def __init__(
        self,
        *,
        slices: int = 1024,
        knots: int = 17,
        t_max: float = 3.0,
        shared_slices: bool = True,
        seed: int = 0,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        self.test = EppsPulley(knots, t_max)
        self.slices = Slices(slices, shared=shared_slices, seed=seed)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        return {"sigreg": sliced_mean(z, self.slices, self.test, gathered=self.gather, group=self.group)}


class LeJEPALoss(WithInvariance):
    """`lam * SIGReg + (1 - lam) * invariance`.

    The invariance draws views to the mean of the global ones, which are all views unless local ones are given.  That is
    the authors' minimal example, and so is lam = 0.02 (lightly: 0.05).  The other arguments are SIGReg's.

    >>> import torch
    >>> z0, z1 = torch.randn(2, 32, 8)
    >>> list(LeJEPALoss(slices=64).terms(z0, z1))
    ['sigreg', 'invariance']
    """

    @takes_arguments_of(SIGReg)
    def __init__(self, *, lam: Weight = 0.02, **regularizer: Any) -> None:
        super().__init__(SIGReg(**regularizer), lam=lam)
