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
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.losses.base import OnViews, pairs
from reglet.losses.cross_moments import cross_moments
from reglet.types import Scalar, Terms

Variant = Literal["official", "visreg"]


def barlow_terms(a: Float[Tensor, "p n d"], b: Float[Tensor, "p n d"]) -> tuple[Scalar, Scalar]:
    """sum_i (C_ii - 1)^2 and sum_{i != j} C_ij^2 of standardised embeddings, each the mean over pairs."""
    p, n, _ = a.shape
    diagonal, energy = cross_moments(a, b)
    return (diagonal / n - 1).square().sum() / p, energy / (p * n**2)


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
        v, n, _ = z.shape
        if self.variant == "official":
            if v < 2:
                raise ValueError("BarlowTwinsLoss compares views and needs at least 2, got 1")
            compared = list(pairs(v, n_global))
            unit = torch.stack([F.batch_norm(one, None, None, training=True, eps=self.eps) for one in z.unbind()])
        else:
            compared = [(i, i + 1) for i in range(v - 1)] or [(0, 0)]
            zc = z - z.mean(dim=1, keepdim=True)
            unit = zc / (torch.linalg.vector_norm(zc, dim=1, keepdim=True) / (n - 1) ** 0.5 + 1e-6)
        first, second = zip(*compared, strict=True)
        a, b = unit.split(1) if v == 2 else (unit[list(first)], unit[list(second)])
        on, off = barlow_terms(a, b)
        return {"invariance": on, "redundancy": self.weight * off}
