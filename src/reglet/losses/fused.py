"""A scalar whose gradient is computed together with it.

A loss over K slices needs every slice twice, once for its value and once for its gradient.  Autograd keeps them all in
between; but the gradient of a scalar is known as soon as the scalar is, so both are computed slice-chunk by slice-chunk
and only a tensor of the input's own size is kept.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Kernel = Callable[..., tuple[Tensor, tuple[Tensor, ...]]]  # (*tensors) -> value, its gradient for each of them


@torch.compiler.disable
def fused(kernel: Kernel, *tensors: Tensor) -> Tensor:
    """`kernel(*tensors)[0]`, differentiable once, in reverse and in forward mode."""
    out: Tensor = _Fused.apply(kernel, *tensors)
    return out


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Kernel, *tensors: Tensor) -> Tensor:
        value, grads = kernel(*tensors)
        ctx.save_for_backward(*grads)
        ctx.save_for_forward(*grads)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        grads = [g * grad for grad in ctx.saved_tensors]
        if torch.is_grad_enabled():  # create_graph=True
            grads = [_Once.apply(grad) for grad in grads]
        return None, *grads

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Tensor | None) -> Tensor:
        parts = [(grad * t).sum() for grad, t in zip(ctx.saved_tensors, tangents, strict=True) if t is not None]
        return torch.stack(parts).sum()


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        raise RuntimeError(
            "this loss computes its gradient in the forward pass and has no second derivative. "
            "For a gradient penalty, use the plain formula in tests/losses/oracles.py."
        )
