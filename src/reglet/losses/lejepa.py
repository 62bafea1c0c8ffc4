"""LeJEPA: SIGReg and the invariance of views.  Balestriero & LeCun 2025, arXiv:2511.08544.

L = lam SIGReg(z) + (1 - lam) L_inv
"""

from typing import Any

from reglet.losses.invariance import WithInvariance, takes_arguments_of
from reglet.losses.sigreg import SIGReg
from reglet.schedules import Weight


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
