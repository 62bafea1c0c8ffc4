"""The recurrence of Mamba.  Gu and Dao, 2023, arXiv:2312.00752."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def selective_scan(
    u: Float[Tensor, "n l d"],
    delta: Float[Tensor, "n l d"],
    A: Float[Tensor, "d s"],
    B: Float[Tensor, "n l s"],
    C: Float[Tensor, "n l s"],
    D: Float[Tensor, " d"],
) -> Float[Tensor, "n l d"]:
    """h_t = exp(Delta_t A) h_{t-1} + Delta_t B_t u_t,    y_t = C_t h_t + D u_t,    h_0 = 0 before the first token.

    A state of s numbers for each of d features; step, input and output depend on the token.  As in the authors' code,
    A is discretized exactly and B by Euler's rule (the paper prints a zero-order hold for both).
    """
    first = [z.transpose(0, 1) for z in (u, delta, B, C)]  # time in front: a step of the recurrence is contiguous
    u_t, delta_t, B_t, C_t = first
    decay = (delta_t[..., None] * A).exp()
    h = linear_scan(decay, (delta_t * u_t)[..., None] * B_t[:, :, None, :])
    y = (h @ C_t[..., None]).squeeze(-1)
    return y.transpose(0, 1) + D * u


def linear_scan(a: Float[Tensor, "l *state"], b: Float[Tensor, "l *state"]) -> Float[Tensor, "l *state"]:
    """h_t = a_t h_{t-1} + b_t, with h_{-1} = 0."""
    h: Tensor = _LinearScan.apply(a, b)
    return h


class _LinearScan(torch.autograd.Function):
    """The gradient is a scan too, from the end:  g_t = dL/dh_t + a_{t+1} g_{t+1},  dL/db = g,  dL/da_t = g_t h_{t-1}.

    Autograd through a loop would keep a node for each step; here two fused operations per step are all there is.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        h = b.clone(memory_format=torch.contiguous_format)
        steps, decays = h.unbind(0), a.unbind(0)
        for t in range(1, len(steps)):
            steps[t].addcmul_(decays[t], steps[t - 1])
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, h = ctx.saved_tensors
        g = grad.clone(memory_format=torch.contiguous_format)
        steps, decays = g.unbind(0), a.unbind(0)
        for t in range(len(steps) - 2, -1, -1):
            steps[t].addcmul_(decays[t + 1], steps[t + 1])
        return g * F.pad(h[:-1], [0, 0] * (h.ndim - 1) + [1, 0]), g
