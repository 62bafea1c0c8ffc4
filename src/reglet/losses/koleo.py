"""KoLeo keeps samples apart.  Sablayrolles et al., ICLR 2019, arXiv:1806.03198; as in DINOv2 and lightly.

    u_i = z_i / |z_i|
    L   = -1/n sum_i log(rho_i + eps),      rho_i = min_{j != i} |u_i - u_j|

Up to constants this is minus the entropy of the directions, as Kozachenko and Leonenko estimate it.  lightly also adds
its eps = 1e-8 to the differences.

The nearest neighbour is found by products of rows.  Rows that are nearly equal are centred first to keep digits, which
does not change distances.  The distance is then computed from the difference.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet import check
from reglet.check import readable
from reglet.dist import Group, Ranks
from reglet.losses.base import OnViews
from reglet.losses.shortcut import by_autograd, shortcut
from reglet.losses.unit_rows import is_usual, unit
from reglet.types import Scalar, Terms

SAFE = 1e-3  # squared distance of unit rows: nearer neighbours are told apart in float64


def _nearest(u: Float[Tensor, "v n d"]) -> Int[Tensor, " vn"]:
    """argmax_j <u_i, u_j>, as row numbers over all views.  Where float32 cannot tell, centred rows are compared, on the
    CPU in float64."""
    u = u.detach()
    if readable(u):
        found = _largest(u @ u.mT)
        if u.dtype == torch.float64 or bool(_apart(u, found).square().sum(1).min() > SAFE):
            return found
    centred = u - u.mean(dim=1, keepdim=True)
    centred = centred.double() if readable(u) else centred
    return _largest(torch.baddbmm(centred.square().sum(2)[:, None], centred, centred.mT, beta=-0.5))


def _largest(near: Float[Tensor, "v n n"]) -> Int[Tensor, " vn"]:
    """The place of the largest entry of each row, without the diagonal.  Overwrites `near`."""
    v, n, _ = near.shape
    near.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    first = n * torch.arange(v, device=near.device)
    return (near.argmax(dim=2) + first[:, None]).flatten()


def _apart(u: Float[Tensor, "v n d"], nearest: Int[Tensor, " vn"]) -> Float[Tensor, "vn d"]:
    rows = u.flatten(0, 1)
    return rows - rows.index_select(0, nearest)


def _formula(z: Float[Tensor, "v n d"], eps: float) -> Scalar:
    u = unit(z)
    return -(torch.linalg.vector_norm(_apart(u, _nearest(u)), dim=1) + eps).log().mean()


def _koleo(z: Float[Tensor, "v n d"], eps: float) -> Scalar:
    """L with its gradient.  The pair (i, nearest j) pulls at both rows:

    p_i  = -1/n (u_i - u_j) / (rho_i (rho_i + eps)),      du_i = p_i - sum of p_k over the k whose nearest is i
    dz_i = (du_i - u_i <u_i, du_i>) / |z_i|
    """

    def formula(z: Tensor) -> Tensor:
        return _formula(z, eps)

    def kernel(z: Tensor, *, gradient: bool, **_: object) -> tuple[Tensor, list[Tensor]]:
        length = torch.linalg.vector_norm(z, dim=2, keepdim=True)
        if not is_usual(length):
            return by_autograd(formula, z)
        u = z / length
        nearest = _nearest(u)
        apart = _apart(u, nearest)
        rho = torch.linalg.vector_norm(apart, dim=1)
        value = -(rho + eps).log().mean()
        if not gradient:
            return value, []
        pull = apart.mul_((-1 / len(rho) / (rho * (rho + eps))).masked_fill_(rho == 0, 0)[:, None])
        du = pull.clone().index_add_(0, nearest, pull, alpha=-1).view_as(u)
        along = torch.linalg.vecdot(u, du).unsqueeze(-1)
        return value, [du.addcmul_(u, along, value=-1).div_(length)]

    return shortcut(formula, kernel if readable(z) else None, z, ranks=Ranks((z.shape[1],)))


class KoLeo(OnViews):
    """The mean over views.  If several neighbours are equally near, one of them is taken.

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
