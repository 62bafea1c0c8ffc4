"""VISReg: one term each for the scale, the shape and the centre of the embedding.  Wu et al. 2026, arXiv:2606.02572.

The terms of each view, averaged over views (Algorithm 1).  Where an equation of the paper sums, the algorithm and the
authors' code take means.  The weights were tuned on means, so we take means too:

    L_center = mean_j mu_j^2                                    mu_j = mean_i z_ij
    L_scale  = mean_j (std_j - 1)^2                             std_j = sqrt(mean_i (z_ij - mu_j)^2) + eps
    L_shape  = mean_{i,k} (sort_i(zn w_k) - Phi^-1(i/(n+1)))^2  zn = (z - mu) / stopgrad(std), |w_k| = 1
    L        = lam (L_scale + L_shape + L_center) + (1 - lam) L_inv
"""

from typing import Any, get_args

from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.formula import formula
from reglet.losses.invariance import WithInvariance, takes_arguments_of
from reglet.losses.sliced import sliced_mean, sliced_sum
from reglet.losses.slices import Given, Slices
from reglet.losses.standardize import standardize
from reglet.losses.wasserstein import Positions, ToQuantiles, normal_quantiles
from reglet.schedules import Weight, checked_weight
from reglet.types import Scalar, Terms


@formula("v n d")
def visreg_center(z: Float[Tensor, "v n d"]) -> Scalar:
    """mean_{v,j} mu_vj^2.

    >>> import torch
    >>> visreg_center(torch.full((1, 8, 4), 3.0)).item()
    9.0
    """
    return z.mean(dim=1).square().mean()


@formula("v n d")
def visreg_scale(z: Float[Tensor, "v n d"], *, eps: float = 1e-6) -> Scalar:
    """mean_{v,j} (std_vj - 1)^2.

    >>> import torch
    >>> round(visreg_scale(torch.zeros(1, 8, 4)).item(), 4)
    1.0
    """
    check.positive(eps=eps)
    return (standardize(z, eps=eps, detach=True).std - 1).square().mean()


@formula("v n d", "k d")
def visreg_shape(
    z: Float[Tensor, "v n d"],
    directions: Float[Tensor, "k d"],
    *,
    eps: float = 1e-6,
    detach: bool = True,
    positions: Positions = "weibull",
) -> Scalar:
    """mean_{v,i,k} (sort_i(zn w_k) - q_i)^2 for the given unit directions.

    >>> import torch
    >>> z = torch.randn(1, 256, 8)
    >>> bool(visreg_shape(z, torch.eye(8)) < visreg_shape(z.sign(), torch.eye(8)))
    True
    """
    check.positive(eps=eps)
    check.flag(detach=detach)
    check.choice("positions", positions, get_args(Positions))
    _, std, zn = standardize(z, eps=eps, detach=detach)
    check.no_overflow("visreg_shape", {"std": std}, z)  # otherwise zn would be 0, and nobody would notice
    to_normal = ToQuantiles(normal_quantiles(z.shape[1], positions=positions, like=z))
    return sliced_sum(zn, Given(directions), to_normal) / len(directions)


class VISReg(OnViews):
    """The regularizer.  It keeps every view at zero mean, unit scale and Gaussian shape.

    scale, shape, center: weights of the terms, numbers or schedules.  More shape helps long tails (the paper's 4:1).
        With `detach`, the shape term also contracts the embedding.  The scale term prevents that only while
        4 shape (1 - rho) < scale, where rho <= 1 is the correlation of sorted projections with the quantiles.  So 4:1
        collapses at n <= 54.
    eps: added to std, outside the root, also in the scale term.  The paper gives no value; 1e-6 is the authors'.
    detach: no gradient flows through std in the shape term.
    positions: the quantiles of "hazen" have nearly unit variance at small n.
    shared_slices: all ranks use the same directions.  Otherwise W ranks average over W * slices directions.

    >>> import torch
    >>> sorted(VISReg(slices=64).terms(torch.randn(2, 32, 8)))
    ['center', 'scale', 'shape']
    """

    least_views = 1

    def __init__(
        self,
        *,
        slices: int = 4096,
        scale: Weight = 1.0,
        shape: Weight = 1.0,
        center: Weight = 1.0,
        eps: float = 1e-6,
        detach: bool = True,
        positions: Positions = "weibull",
        shared_slices: bool = False,
        seed: int = 0,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.choice("positions", positions, get_args(Positions))
        check.positive(eps=eps)
        check.flag(detach=detach)
        weights = {"scale": scale, "shape": shape, "center": center}
        self.scale, self.shape, self.center = (checked_weight(name, weight) for name, weight in weights.items())
        self.eps = eps
        self.detach, self.positions = detach, positions
        self.slices = Slices(slices, shared=shared_slices, seed=seed)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        mean, std, zn = standardize(z, eps=self.eps, detach=self.detach)
        to_normal = ToQuantiles(normal_quantiles(z.shape[1], positions=self.positions, like=z))
        shape = sliced_mean(zn, self.slices, to_normal, gathered=self.gather, group=self.group)
        return {
            "scale": self.now("scale") * (std - 1).square().mean(),
            "shape": self.now("shape") * shape,
            "center": self.now("center") * mean.square().mean(),
        }


class VISRegLoss(WithInvariance):
    """`lam * VISReg + (1 - lam) * invariance`.

    lam: 0.9 for ImageNet-size data (ViT-B/16), 0.6 for small sets, 0.7 to 0.8 for ViT-L.  The other arguments are
    VISReg's.

    >>> import torch
    >>> z0, z1 = torch.randn(2, 32, 8)
    >>> loss = VISRegLoss(slices=64)
    >>> bool(loss(z0, z1) > 0), list(loss.terms(z0, z1))
    (True, ['scale', 'shape', 'center', 'invariance'])
    """

    @takes_arguments_of(VISReg)
    def __init__(self, *, lam: Weight = 0.9, **regularizer: Any) -> None:
        super().__init__(VISReg(**regularizer), lam=lam)
