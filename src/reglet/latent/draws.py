"""Random draws of latent operators.

They are made on the CPU, so that they depend only on the generator's seed, and moved once.
"""

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from reglet import check


def beta(alpha: float, n: int, generator: torch.Generator | None = None) -> Float64[Tensor, " n"]:
    """`n` draws from Beta(alpha, alpha).  numpy makes them, because torch's sampler takes no generator."""
    seed = int(torch.randint(2**63 - 1, (), generator=generator, device="cpu"))
    return torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, n))


def moved(drawn: Tensor, x: Tensor) -> Tensor:
    """`drawn` on the device of `x`.  It is pinned if the device reads pinned memory, so that the host does not wait."""
    if drawn.device == x.device:
        return drawn
    pins = drawn.device.type == "cpu" and x.device.type not in ("cpu", "meta", "mps")
    return (drawn.pin_memory() if pins else drawn).to(x.device, non_blocking=True)


def require_batch(drawn: Tensor, x: Tensor, *shape: int | None) -> None:
    """Raise unless `x` is a floating-point tensor of that shape (see `check.tensor`) and the draw fits its batch."""
    check.tensor("x", x, *shape)
    if len(drawn) != len(x):
        raise ValueError(f"drawn for a batch of {len(drawn)}, got one of {len(x)}")
