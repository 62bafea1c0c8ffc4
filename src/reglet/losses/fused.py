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
        ctx.save_for_backward(*grads, *tensors)
        ctx.save_for_forward(*grads)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        half = len(ctx.saved_tensors) // 2
        grads, tensors = ctx.saved_tensors[:half], ctx.saved_tensors[half:]
        return None, *(once(g * grad, *tensors) for grad in grads)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Tensor | None) -> Tensor:
        parts = [(grad * t).sum() for grad, t in zip(ctx.saved_tensors, tangents, strict=False) if t is not None]
        return torch.stack(parts).sum()


def once(grad: Tensor, *tensors: Tensor) -> Tensor:
    """`grad`, a gradient for `tensors`, which refuses to be differentiated again where it would pass for a constant."""
    return _Once.apply(grad, *tensors) if torch.is_grad_enabled() else grad  # enabled: create_graph=True


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, *tensors: Tensor) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        raise RuntimeError(
            "this loss computes its gradient together with its value and has no second derivative. "
            "For a gradient penalty, use the plain formula in tests/losses/oracles.py."
        )
