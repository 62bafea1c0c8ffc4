"""Rectified LpJEPA: embeddings that are sparse and not negative.  arXiv:2602.01456; YilunKuang/rectified-lp-jepa.

    y = ReLU(z),  x = ReLU(mu + sigma g),  g_ij independent with density ~ exp(-|g|^p / p)          both (n, d)
    R = mean_{v,i,k} (sort_i(y w_k) - sort_i(x w_k))^2,  |w_k| = 1
    L = 25 mean_{i,j} (y_ij - y'_ij)^2 + 125 R

x is a rectified generalized normal: Laplace for p = 1, normal for p = 2.  Smaller p and mu make more zeros.  x is drawn
anew in every call, from (seed, step) as the directions are; one draw serves all views (the authors: one for each view).
sigma = p^(-1/p) sqrt(Gamma(1/p) / Gamma(3/p)) if not given, so that mu + sigma g has variance 1.

The authors' projector ends in the ReLU.  Here the loss has it, so that any projector serves; after a ReLU it changes
nothing.  Their weight of R is 250 for CIFAR-100 with a ResNet, and 125 in their other settings.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group
from reglet.losses.base import OnViews, pairs
from reglet.losses.sliced import sliced_mean
from reglet.losses.slices import Drawn, Slices
from reglet.losses.wasserstein import ToSamples
from reglet.schedules import Weight, checked_weight
from reglet.types import Scalar, Terms


def unit_variance(p: float) -> float:
    """The sigma for which sigma g has variance 1.

    >>> round(unit_variance(1.0) ** 2, 6), round(unit_variance(2.0), 6)
    (0.5, 1.0)
    """
    return float(p ** (-1 / p) * math.exp((math.lgamma(1 / p) - math.lgamma(3 / p)) / 2))


def _rectified(z: Tensor) -> Tensor:
    """ReLU, under which -inf and NaN become NaN and not a harmless 0."""
    return torch.where(z > 0, z, 0 * z)


class RDMReg(OnViews):
    """R: the distance to a rectified generalized normal distribution.

    p, mu, sigma: of the distribution before it is rectified.
    shared_slices: the same directions and the same x on all ranks.  By default each rank draws its own.

    >>> z = torch.distributions.Laplace(0.0, 0.5**0.5).sample((256, 8))
    >>> bool(RDMReg(slices=64)(z) < RDMReg(slices=64)(2 * z)), bool(RDMReg(slices=64)(z) < RDMReg(slices=64)(0 * z))
    (True, True)
    """

    least_views = 1

    def __init__(
        self,
        *,
        slices: int = 8192,
        p: float = 1.0,
        mu: float = 0.0,
        sigma: float | None = None,
        shared_slices: bool = False,
        seed: int = 0,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.between(0.1, 100, p=p)
        check.finite(mu=mu)
        if sigma is not None:
            check.positive(sigma=sigma)
        self.p, self.mu = p, mu
        self.sigma = unit_variance(p) if sigma is None else sigma
        self.slices = Slices(slices, shared=shared_slices, seed=seed)

    def samples(self, drawn: Drawn, n: int) -> Float[Tensor, "n d"]:
        """x for the call that gets these directions.  Tensors without numbers, meta and fake ones, need none."""
        g = torch.zeros(n, drawn.d, dtype=drawn.dtype, device=drawn.device)
        if type(g) is Tensor and not g.is_meta:
            g = _generalized_normal(g, self.p, drawn.generator())
        return F.relu(self.mu + self.sigma * g)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        return {"rdmreg": self.distance(_rectified(z))}

    def distance(self, y: Float[Tensor, "v n d"]) -> Scalar:
        """R of rectified embeddings."""
        n = y.shape[1]
        return sliced_mean(
            y,
            self.slices,
            ToSamples(),
            beside=lambda drawn: self.samples(drawn, n),
            gathered=self.gather,
            group=self.group,
        )


def _generalized_normal(g: Float[Tensor, "n d"], p: float, generator: torch.Generator) -> Float[Tensor, "n d"]:
    """Written into g.  |g|^p / p is Gamma(1/p)."""
    if p == 1:  # the difference of two exponentials
        return g.exponential_(generator=generator) - torch.empty_like(g).exponential_(generator=generator)
    if p == 2:
        return g.normal_(generator=generator)
    size = (p * torch._standard_gamma(g.fill_(1 / p), generator=generator)).pow(1 / p)
    return size.copysign(g.uniform_(-1, 1, generator=generator))


class RectifiedLpJEPALoss(OnViews):
    """invariance, weight: of the two terms of L.  The others are RDMReg's.

    Beyond two views, the invariance is the mean over the pairs that contain a global view.

    >>> list(RectifiedLpJEPALoss(slices=64).terms(*torch.randn(2, 32, 8)))
    ['rdmreg', 'invariance']
    """

    def __init__(
        self,
        *,
        invariance: Weight = 25.0,
        weight: Weight = 125.0,
        slices: int = 8192,
        p: float = 1.0,
        mu: float = 0.0,
        sigma: float | None = None,
        shared_slices: bool = False,
        seed: int = 0,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        self.invariance = checked_weight("invariance", invariance)
        self.weight = checked_weight("weight", weight)
        self.regularizer = RDMReg(
            slices=slices, p=p, mu=mu, sigma=sigma, shared_slices=shared_slices, seed=seed, gather=gather, group=group
        )

    @property
    def slices(self) -> Slices:
        return self.regularizer.slices

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        y = _rectified(z)
        gaps = [(y[i] - y[j]).square().mean() for i, j in pairs(len(y), n_global)]
        return {
            "rdmreg": self.now("weight") * self.regularizer.distance(y),
            "invariance": self.now("invariance") * torch.stack(gaps).mean(),
        }
