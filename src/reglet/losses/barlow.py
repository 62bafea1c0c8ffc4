"""Barlow Twins.  Zbontar et al., ICML 2021, arXiv:2103.03230.

    C = BN(Z)^T BN(Z') / n                  BN: per feature over the batch, biased variance, eps inside the root
    L = sum_i (C_ii - 1)^2 + weight sum_{i != j} C_ij^2

`variant="official"` is the paper and its code.  solo-learn multiplies the whole by 0.025; lightly's weight is 0.005.
On several ranks the authors sum C in place, which leaves 1/W of the gradient; with `gather` ours is that of the whole
batch, statistics included.  `variant="visreg"` is VISReg's comparison: unbiased std + 1e-6, neighbouring views only,
and one view against itself where there is only one.  Beyond two views the loss is the mean over pairs.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.losses.base import OnViews, pairs
from reglet.losses.cross_moments import cross_moments, standardized_cross_moments
from reglet.types import Scalar, Terms

Variant = Literal["official", "visreg"]


def barlow_twins(
    z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], *, eps: float = 1e-5, variant: Variant = "official"
) -> tuple[Scalar, Scalar]:
    """sum_i (C_ii - 1)^2 and sum_{i != j} C_ij^2, unweighted."""
    n = len(z0)
    if variant == "official":
        diagonal, energy = standardized_cross_moments(z0, z1, eps=eps)
    else:
        a, b = _unbiased(z0), _unbiased(z1)
        diagonal, energy = cross_moments(a.unsqueeze(0), b.unsqueeze(0))
    return (diagonal / n - 1).square().sum(), energy / n**2


def _unbiased(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    zc = z - z.mean(dim=0)
    return zc / (torch.linalg.vector_norm(zc, dim=0) / (len(z) - 1) ** 0.5 + 1e-6)


class BarlowTwinsLoss(OnViews):
    """
    >>> import torch
    >>> BarlowTwinsLoss()(torch.ones(2, 16, 4)).item()  # constants: C = 0
    4.0
    """

    least_views = 1  # visreg's variant compares a lone view with itself; the official one asks for two below

    def __init__(
        self,
        *,
        weight: float = 0.0051,
        eps: float = 1e-5,
        variant: Variant = "official",
        gather: bool = False,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, check_finite=check_finite)
        if variant not in get_args(Variant):
            raise ValueError(f"variant must be one of {get_args(Variant)}, got {variant!r}")
        self.weight, self.eps, self.variant = weight, eps, variant

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        # The gradient of unbind is one stack; that of z[i] would be as large as all views together.
        return self.compute_separate(list(z.unbind()), n_global)

    def compute_separate(self, views: list[Float[Tensor, "n d"]], n_global: int) -> Terms:
        v = len(views)
        if self.variant == "official":
            if v < 2:
                raise ValueError("BarlowTwinsLoss compares views and needs at least 2, got 1")
            compared = list(pairs(v, n_global))
        else:
            compared = [(i, i + 1) for i in range(v - 1)] or [(0, 0)]
        terms = [barlow_twins(views[i], views[j], eps=self.eps, variant=self.variant) for i, j in compared]
        on, off = (torch.stack(every).mean() for every in zip(*terms, strict=True))
        return {"invariance": on, "redundancy": self.weight * off}
