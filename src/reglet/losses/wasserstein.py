"""The squared 2-Wasserstein distance in one dimension, from n samples to the standard normal or to n other samples."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.types import Scalar

Positions = Literal["weibull", "hazen"]


@torch.compiler.disable  # they are kept between calls, which a compiler warns about
def normal_quantiles(
    n: int, *, positions: Positions = "weibull", clamp: float = 0.0, like: Tensor
) -> Float[Tensor, "n"]:
    """q_i = Phi^-1(i / (n + 1)) ("weibull", the paper's) or Phi^-1((i - 1/2) / n) ("hazen", nearer unit variance).

    They are kept on each device.  Under a mode such as FakeTensorMode they are made anew and not kept, because tensors
    made under it are not real.
    """
    watched = torch._C._len_torch_dispatch_stack() > 0
    return (_quantiles if watched else _known_quantiles)(n, positions, clamp, like.device, like.dtype)


def _quantiles(n: int, positions: Positions, clamp: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Computed in float64, on the CPU because not every device has float64.  In bfloat16 the last position would round
    to 1, and its quantile to infinity."""
    with torch.inference_mode(False):
        i = torch.arange(1, n + 1, dtype=torch.float64, device="cpu")
        u = i / (n + 1) if positions == "weibull" else (i - 0.5) / n
        return torch.special.ndtri(u.clamp(clamp, 1 - clamp)).to(dtype).to(device)


_known_quantiles = lru_cache(maxsize=64)(_quantiles)


@dataclass(frozen=True)
class ToQuantiles:
    """sum_k mean_{v,i} (p_(i) - q_i)^2."""

    q: Float[Tensor, "n"]

    def __call__(self, p: Float[Tensor, "k v n"]) -> Scalar:
        return (p.sort(dim=-1).values - self.q).square().mean(dim=(1, 2)).sum()


@dataclass(frozen=True)
class ToSamples:
    """sum_k mean_{v,i} (p_(i) - x_(i))^2, where the last of the views is x, which gets no gradient."""

    def __call__(self, p: Float[Tensor, "k v1 n"]) -> Scalar:
        x = p[:, -1:].detach().sort(dim=-1).values
        return (p[:, :-1].sort(dim=-1).values - x).square().mean(dim=(1, 2)).sum()
