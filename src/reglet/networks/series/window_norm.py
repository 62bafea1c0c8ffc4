"""Windows at a common level and scale, and back."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Level(NamedTuple):
    """The mean and scale of each channel of each window."""

    mean: Float[Tensor, "n 1 c"]
    scale: Float[Tensor, "n 1 c"]


def normalized(x: Float[Tensor, "n t c"], *, eps: float = 1e-5) -> tuple[Float[Tensor, "n t c"], Level]:
    """(x - mean) / sqrt(var + eps) over the time of each window.  A channel that stands still becomes zero.

    Liu et al., Non-stationary Transformers, NeurIPS 2022.
    """
    variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
    level = Level(mean, (variance + eps).sqrt())
    return (x - level.mean) / level.scale, level


def restored(z: Float[Tensor, "n t c"], level: Level) -> Float[Tensor, "n t c"]:
    """The inverse of `normalized`."""
    return z * level.scale + level.mean
