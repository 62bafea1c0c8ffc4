"""The Epps-Pulley test of normality in one dimension: the distance between characteristic functions.

T(x) = n sum_k c_k phi_k [ (mean_i cos(t_k x_i) - phi_k)^2 + (mean_i sin(t_k x_i))^2 ]
t_k  = k dt,  k = 0..knots - 1,  dt = t_max / (knots - 1);    phi_k = exp(-t_k^2/2)
c_k  = 2 dt, and dt at both ends: the trapezoid rule on [-t_max, t_max], folded at 0
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.types import Scalar


@dataclass(frozen=True)
class EppsPulley:
    """sum_k mean_v T(p_kv)."""

    knots: int = 17
    t_max: float = 3.0

    def __post_init__(self) -> None:
        check.whole(2, knots=self.knots)
        check.positive(t_max=self.t_max)

    @property
    def dt(self) -> float:
        return self.t_max / (self.knots - 1)

    def constants(self) -> Iterator[tuple[float, float, float]]:
        """(t_k, phi_k, c_k phi_k) of every knot."""
        for k in range(self.knots):
            phi = math.exp(-((k * self.dt) ** 2) / 2)
            yield k * self.dt, phi, (1 if k in (0, self.knots - 1) else 2) * self.dt * phi

    def __call__(self, p: Float[Tensor, "k v n"]) -> Scalar:
        T = p.new_zeros(p.shape[:2])
        for t, phi, weight in self.constants():
            cos, sin = torch.cos(t * p).mean(dim=-1), torch.sin(t * p).mean(dim=-1)
            T = T + weight * ((cos - phi).square() + sin.square())
        return p.shape[-1] * T.mean(dim=1).sum()
