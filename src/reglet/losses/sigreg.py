"""SIGReg: the sliced Epps-Pulley test of normality, as a regularizer.  Balestriero & LeCun 2025, arXiv:2511.08544.

    T(x) = n sum_k c_k phi_k [ (mean_i cos(t_k x_i) - phi_k)^2 + (mean_i sin(t_k x_i))^2 ]
    t_k  = k dt,  k = 0..16,  dt = 3/16;    phi_k = exp(-t_k^2/2);    c_k = 2 dt, but dt at both ends
    L    = mean over views and slices of T(z w)

The knots are equidistant, so with x' = dt x all that is needed is cos(k x') and sin(k x') for k = 0..16.  Write
k = m a + b with |b| <= h and m = 2h + 1; then by angle addition

    cos(k x') = cos(m a x') cos(b x') - sin(m a x') sin(b x')          (and the same for the sine)

and a sum over samples of such products is an entry of the small matrix U V^T, where the rows of U are 1 and the cosines
and sines of m x', 2m x', ..., those of V 1 and the cosines and sines of x', ..., h x'.  For 17 knots, U has 5 rows and
V has 7: ten transcendentals per element instead of 34, and the gradient, a trigonometric polynomial in x', comes back
through the same two factors.
"""

import math
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.losses.base import OnViews
from reglet.losses.sliced import given, sliced_mean, sliced_sum
from reglet.losses.slices import Slices
from reglet.types import Scalar, Terms


@dataclass(frozen=True)
class Knots:
    """The constants of the quadrature, and `combine`: (u v) products -> [sum cos(k x'), sum sin(k x')] for all k."""

    dt: float
    coarse: int  # a = 1..coarse
    fine: int  # h
    t: Float[Tensor, "knots"]
    phi: Float[Tensor, "knots"]
    weight: Float[Tensor, "knots"]  # c_k phi_k
    combine: Float[Tensor, "uv two_knots"]


@lru_cache(maxsize=16)
def _knots(count: int, t_max: float, device: torch.device, dtype: torch.dtype) -> Knots:
    dt = t_max / (count - 1)
    t = torch.arange(count, dtype=torch.float64) * dt
    phi = torch.exp(-t.square() / 2)
    c = torch.full_like(t, 2 * dt)
    c[[0, -1]] = dt
    fine = math.ceil(((count - 1) / 4) ** 0.5 + 0.5)  # V larger than U, which the gradient passes once more
    m = 2 * fine + 1
    coarse = -(-(count - 1 - fine) // m)
    combine = torch.zeros(2 * coarse + 1, 2 * fine + 1, 2, count, dtype=torch.float64)
    for k in range(count):
        a = (k + fine) // m
        b = k - m * a
        sign = 1 if b >= 0 else -1
        ca, sa = (0, None) if a == 0 else (2 * a - 1, 2 * a)  # rows of U: 1, cos m, sin m, cos 2m, ...
        cb, sb = (0, None) if b == 0 else (2 * abs(b) - 1, 2 * abs(b))  # rows of V
        combine[ca, cb, 0, k] = 1
        if sa is not None:
            combine[sa, cb, 1, k] = 1
        if sb is not None:
            combine[ca, sb, 1, k] = sign
        if sa is not None and sb is not None:
            combine[sa, sb, 0, k] = -sign
    constants = (t, phi, c * phi, combine.flatten(0, 1).flatten(1))
    return Knots(dt, coarse, fine, *(x.to(device, dtype) for x in constants))


class EppsPulley:
    """sum_k mean_v T(p_kv) and its gradient, which takes the place of p."""

    factor = 1.0

    def __init__(self, knots: Knots, p: Float[Tensor, "k v n"]) -> None:
        k, self.v, n = p.shape
        rows = k * self.v
        self.knots, self.x = knots, p.view(rows, n)
        self.U = p.new_empty(2 * knots.coarse + 1, rows, n)
        self.V = p.new_empty(2 * knots.fine + 1, rows, n)
        self.slope = p.new_empty(rows, len(self.U), n)
        self.U[0] = self.V[0] = 1

    def __call__(self) -> Tensor:
        knots, x, v, n = self.knots, self.x, self.v, self.x.shape[-1]
        _harmonics(x, self.U, knots.dt * (2 * knots.fine + 1))
        _harmonics(x, self.V, knots.dt)
        U, V = self.U.transpose(0, 1), self.V.transpose(0, 1)
        moments = torch.bmm(U, V.mT).flatten(1) @ knots.combine / n
        cos, sin = moments.chunk(2, dim=1)
        gap = cos - knots.phi
        value = n * ((gap.square() + sin.square()) @ knots.weight).sum() / v

        # dT/dx_i = 2 sum_k c_k phi_k t_k [ -gap_k sin(t_k x_i) + S_k cos(t_k x_i) ]
        weights = torch.cat([sin, -gap], dim=1) * (2 / v * knots.weight * knots.t).repeat(2)
        factors = (weights @ knots.combine.T).view(-1, len(self.U), len(self.V))
        slope = torch.bmm(factors, V, out=self.slope).transpose(0, 1)
        x.copy_(slope[0])
        for row, harmonic in zip(slope[1:], self.U[1:], strict=True):
            x.addcmul_(row, harmonic)
        return value


def _harmonics(x: Float[Tensor, "r n"], rows: Float[Tensor, "m r n"], step: float) -> None:
    """cos(step x), sin(step x), cos(2 step x), sin(2 step x), ... into the rows after the first."""
    for a in range(1, len(rows) // 2 + 1):
        cos, sin = rows[2 * a - 1], rows[2 * a]
        torch.mul(x, a * step, out=cos)
        torch.sin(cos, out=sin)
        cos.cos_()


def epps_pulley(
    z: Float[Tensor, "v n d"], directions: Float[Tensor, "k d"], *, knots: int = 17, t_max: float = 3.0
) -> Scalar:
    """mean_{v,k} T(z w_k) for the given unit directions."""
    grid = _knots(knots, t_max, z.device, z.dtype)
    return sliced_sum(z, given(directions), partial(EppsPulley, grid)) / len(directions)


class SIGReg(OnViews):
    """The regularizer.  The factor n makes its gradient independent of the batch size; VISReg's has none.

    knots, t_max: the quadrature.
    shared_slices: the same directions on all ranks, as in the authors' code; with `gather` the work is then split over
        ranks.  False: each rank draws its own, and W ranks average over W * slices directions.

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
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, check_finite=check_finite)
        if knots < 2 or t_max <= 0:
            raise ValueError(f"SIGReg needs at least 2 knots and a positive t_max, got knots={knots}, t_max={t_max}")
        self.knots, self.t_max = knots, t_max
        self.slices = Slices(slices, shared=shared_slices, seed=seed)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        grid = _knots(self.knots, self.t_max, z.device, z.dtype)
        return {"sigreg": sliced_mean(z, self.slices, partial(EppsPulley, grid), gathered=self.gather)}
