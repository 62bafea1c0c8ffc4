"""Views of one sample, together: the half of VISReg, SWD and LeJEPA that is not the regularizer."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.losses.fused import fused
from reglet.types import Scalar, Terms


def to_center(z: Float[Tensor, "v n d"], n_global: int) -> Scalar:
    """L_inv = mean_{v,i,j} (z_vij - mean_{g global} z_gij)^2.

    Every view, global or local, to the centre of the global ones.  The gradient flows through the centre, and the mean
    is over v, n and d, as in VISReg's code (its paper sums over d).
    """

    def kernel(z: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        gap = z - z[:n_global].mean(dim=0)
        flat = gap.reshape(-1)
        value = torch.dot(flat, flat) / z.numel()
        if n_global < len(z):  # otherwise the gaps of all views add up to 0, and nothing flows through the centre
            gap[:n_global] -= gap.sum(dim=0) / n_global
        return value, (gap.mul_(2 / z.numel()),)

    return fused(kernel, z)


def balanced(lam: float, regularizer: Terms, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
    """L = lam L_reg + (1 - lam) L_inv."""
    return {name: lam * term for name, term in regularizer.items()} | {"invariance": (1 - lam) * to_center(z, n_global)}


def fraction(lam: float) -> float:
    if not 0 <= lam <= 1:
        raise ValueError(f"lam weighs regularizer against invariance and must lie in [0, 1], got {lam}")
    return lam
