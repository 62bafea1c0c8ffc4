"""Louder and softer."""

from jaxtyping import Float
from torch import Tensor


def scale(x: Float[Tensor, "n c t"], gain: Float[Tensor, " n"]) -> Float[Tensor, "n c t"]:
    """gain x, one factor for all channels of a series, so that their proportions stay."""
    return x * gain.to(x.device, x.dtype)[:, None, None]
