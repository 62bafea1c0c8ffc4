"""Noise on every value."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def jitter(x: Float[Tensor, "n c t"], sigma: Float[Tensor, " n"], seed: Int64[Tensor, " n"]) -> Float[Tensor, "n c t"]:
    """x + sigma e, e normal and a function of the series' seed and shape: the same in any batch and on any device."""
    noise = torch.zeros(x.shape, dtype=torch.float32)
    generator = torch.Generator()
    for i in (sigma > 0).nonzero()[:, 0].tolist():
        noise[i] = torch.randn(x.shape[1:], generator=generator.manual_seed(int(seed[i]))) * float(sigma[i])
    return x + noise.to(x.device, x.dtype)
