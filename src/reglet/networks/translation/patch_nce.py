"""PatchNCE: a patch of the translated image should know its own patch in the source.  Park et al., ECCV 2020, eq. 3.

    l_s = -log exp(v_s . v+_s / tau) / sum_u exp(v_s . v+_u / tau),        tau = 0.07,      mean over places and images

v are places of the translation, v+ the same places of the source (no gradient, as in the authors' code), all of unit
length; negatives are the other places of the same image.  `patch_ntxent` has negatives in other images, and computes
thousands of them block by block; here are at most a few hundred, and one product of matrices does.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.types import Scalar


def patch_nce(v: Float[Tensor, "n p k"], source: Float[Tensor, "n p k"], *, temperature: float = 0.07) -> Scalar:
    """
    >>> round(patch_nce(torch.ones(2, 8, 4), torch.ones(2, 8, 4)).item(), 4)  # all equal: log p
    2.0794
    """
    n, p, _ = v.shape
    if p < 2 or temperature <= 0:
        raise ValueError(f"PatchNCE needs two places at least and a positive temperature, got {p} and {temperature}")
    scores = F.normalize(v, dim=2) @ F.normalize(source.detach(), dim=2).transpose(1, 2) / temperature
    return F.cross_entropy(scores.flatten(0, 1), torch.arange(p, device=v.device).repeat(n))
