"""A scalar by a kernel that computes its gradient together with its value, or by the plain formula."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reglet.losses.shortcut import plain

Formula = Callable[[Tensor], Tensor]
Kernel = Callable[[Tensor], tuple[Tensor, Tensor]]  # z -> value, gradient


def fused(formula: Formula, kernel: Kernel, z: Tensor) -> Tensor:
    if not plain(z):
        return formula(z)
    out: Tensor = _Fused.apply(formula, kernel, z)
    return out


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, formula: Formula, kernel: Kernel, z: Tensor) -> Tensor:
        value, grad = kernel(z.detach())
        ctx.formula = formula
        ctx.save_for_backward(z, grad)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, None, Tensor]:
        z, grad = ctx.saved_tensors  # once: checkpointing unpacks a tensor only once
        if torch.is_grad_enabled():  # create_graph=True: a second derivative may follow
            (grad,) = torch.autograd.grad(ctx.formula(z), z, create_graph=True)
        return None, None, g * grad
