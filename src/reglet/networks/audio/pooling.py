"""Statistics pooling: any number of frames to one vector (Snyder et al., x-vectors, ICASSP 2018)."""

import torch
from jaxtyping import Float
from torch import Tensor

EPS = 1e-5  # under the root, so that the deviation of a constant has a gradient


def statistics(x: Float[Tensor, "n d t"]) -> Float[Tensor, "n 2*d"]:
    """[mean_t x, sqrt(var_t x + eps)].  The variance is divided by t, not t - 1, so one frame is enough.

    >>> statistics(torch.zeros(2, 3, 7)).shape
    torch.Size([2, 6])
    """
    return torch.cat([x.mean(2), (x.var(2, correction=0) + EPS).sqrt()], dim=1)


def map_statistics(x: Float[Tensor, "n d f t"]) -> Float[Tensor, "n e"]:
    """The same over the time of a map.  Every channel at every frequency is a feature."""
    return statistics(x.flatten(1, 2))
