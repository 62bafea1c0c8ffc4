"""The mean, the deviation and the standardized embeddings of a batch.

    mu = mean_i z_i,    std = sqrt(mean_i (z_i - mu)^2) + eps,    zn = (z - mu) / std

The first gradient is written by hand and takes four passes over the batch.  Autograd takes a dozen, a tenth of the time
of a loss over slices.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.losses.shortcut import plain


class Standardized(NamedTuple):
    mean: Float[Tensor, "v 1 d"]
    std: Float[Tensor, "v 1 d"]
    zn: Float[Tensor, "v n d"]


def standardize(z: Float[Tensor, "v n d"], *, eps: float, detach: bool) -> Standardized:
    """detach: no gradient flows through the std that zn is divided by."""
    return Standardized(*_Standardize.apply(z, eps, detach)) if plain(z) else formula(z, eps, detach)


def formula(z: Float[Tensor, "v n d"], eps: float, detach: bool) -> Standardized:
    mean = z.mean(dim=1, keepdim=True)
    centred = z - mean
    std = torch.linalg.vector_norm(centred, dim=1, keepdim=True) / z.shape[1] ** 0.5 + eps
    return Standardized(mean, std, centred / (std.detach() if detach else std))


class _Standardize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, eps: float, detach: bool) -> tuple[Tensor, Tensor, Tensor]:
        mean, std, zn = formula(z, eps, detach)
        ctx.eps, ctx.detach = eps, detach
        ctx.save_for_backward(z, std, zn)
        return mean, std, zn

    @staticmethod
    def backward(ctx: Any, g_mean: Tensor, g_std: Tensor, g: Tensor) -> tuple[Tensor, None, None]:
        """(g - mean g) / std + zn std g_std / (n (std - eps)) + g_mean / n."""
        z, std, zn = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: a second derivative may follow
            outputs = formula(z, ctx.eps, ctx.detach)
            return *torch.autograd.grad(outputs, z, (g_mean, g_std, g), create_graph=True), None, None
        n = zn.shape[1]
        if not ctx.detach:
            g_std = g_std - (g * zn).sum(dim=1, keepdim=True) / std
        shift = g.mean(dim=1, keepdim=True) - std * g_mean / n
        g_z = (g - shift) / std
        # A constant feature has std = eps.  There the norm has the subgradient 0.
        spread = std - ctx.eps
        along = torch.where(spread > 0, std / spread, 0)
        return g_z.addcmul_(zn, along * g_std / n), None, None
