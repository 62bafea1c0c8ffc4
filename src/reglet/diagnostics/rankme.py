"""RankMe: how many directions the features use.  Garrido et al., ICML 2023, arXiv:2210.02885, eq. 1."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.diagnostics.spectrum import singular_values


def rankme(z: Float[Tensor, "n d"], *, eps: float = 1e-7) -> float:
    """exp(-sum_k p_k log p_k),   p_k = sigma_k / |sigma|_1 + eps,   sigma: singular values of z.

    Features are not centred, so a large mean counts as one direction.  Between 1 and min(n, d), up to eps; 0 for zeros.
    It depends on n: compare numbers of the same n only.

    >>> round(rankme(torch.eye(8)), 3)
    8.0
    """
    sigma = singular_values(z)
    if not sigma[0] > 0:
        return 0.0
    p = sigma / sigma.sum() + eps
    return float(torch.special.entr(p).sum().exp())
