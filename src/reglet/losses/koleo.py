"""KoLeo: no sample near another.  Sablayrolles et al., ICLR 2019, arXiv:1806.03198; as in DINOv2 and lightly.

    u_i = z_i / |z_i|
    L   = -1/n sum_i log(rho_i + eps),      rho_i = min_{j != i} |u_i - u_j|

Up to constants it is minus the entropy of the directions, as Kozachenko and Leonenko estimate it.  lightly adds its
eps = 1e-8 to the differences too.

The nearest neighbour is found by products of rows.  Where rows are nearly equal they are centred first, because
distances do not see the centre and digits are kept.  The distance itself is that of the difference.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet import check
from reglet.check import readable
from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.unit_rows import unit
from reglet.types import Scalar, Terms

SAFE = 1e-3  # squared distance of unit rows: nearer neighbours are told apart in float64


def _nearest(u: Float[Tensor, "v n d"]) -> Int[Tensor, "v n"]:
    """argmax_j <u_i, u_j>.  Where float32 cannot tell, by the centred rows, in float64 on the CPU."""
    u = u.detach()
    if readable(u):
        found = _largest(u @ u.mT)
        if u.dtype == torch.float64 or bool((u - _at(u, found)).square().sum(2).min() > SAFE):
            return found
    centred = u - u.mean(dim=1, keepdim=True)
    centred = centred.double() if readable(u) else centred
    return _largest(torch.baddbmm(centred.square().sum(2)[:, None], centred, centred.mT, beta=-0.5))


def _largest(near: Float[Tensor, "v n n"]) -> Int[Tensor, "v n"]:
    """Of each row, but for the diagonal.  Overwrites `near`."""
    near.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    return near.argmax(dim=2)


def _at(u: Float[Tensor, "v n d"], index: Int[Tensor, "v n"]) -> Float[Tensor, "v n d"]:
    return u.gather(1, index[..., None].expand_as(u))


def _koleo(z: Float[Tensor, "v n d"], eps: float) -> Scalar:
    u = unit(z)
    return -(torch.linalg.vector_norm(u - _at(u, _nearest(u)), dim=2) + eps).log().mean()


class KoLeo(OnViews):
    """The mean over views.  Among several nearest neighbours one is taken.

    >>> round(KoLeo()(torch.eye(4)).item(), 4)  # every distance is sqrt(2)
    -0.3466
    """

    least_views = 1

    def __init__(
        self, *, eps: float = 1e-8, gather: bool = False, group: Group = None, check_finite: bool = False
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.positive(eps=eps)
        self.eps = eps

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        return {"koleo": _koleo(z, self.eps)}
