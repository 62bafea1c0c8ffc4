"""LeJEPA: SIGReg and the invariance of views.  Balestriero & LeCun 2025, arXiv:2511.08544.

L = lam SIGReg(z) + (1 - lam) L_inv
"""

from jaxtyping import Float
from torch import Tensor

from reglet.losses.base import OnViews
from reglet.losses.invariance import balanced, fraction
from reglet.losses.sigreg import SIGReg
from reglet.losses.slices import Slices
from reglet.types import Terms


class LeJEPALoss(OnViews):
    """`lam * SIGReg + (1 - lam) * invariance`.

    The centre of the invariance is the mean of the global views; without local views, of all views, as in the authors'
    minimal example.  lam: 0.02 as there (lightly: 0.05).  The other arguments are SIGReg's.
    """

    def __init__(
        self,
        *,
        lam: float = 0.02,
        slices: int = 1024,
        knots: int = 17,
        t_max: float = 3.0,
        shared_slices: bool = True,
        seed: int = 0,
        gather: bool = False,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, check_finite=check_finite)
        self.lam = fraction(lam)
        self.regularizer = SIGReg(
            slices=slices, knots=knots, t_max=t_max, shared_slices=shared_slices, seed=seed, gather=gather
        )

    @property
    def slices(self) -> Slices:
        return self.regularizer.slices

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        return balanced(self.lam, self.regularizer.compute(z, n_global), z, n_global)
