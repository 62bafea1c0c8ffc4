"""A scalar loss, by a fast kernel or by its plain formula.

The formula is ordinary torch.  It can be differentiated any number of times, mapped, traced and exported.  The kernel
computes the same value and its gradient together, and faster.  It is used where only one backward can follow: for plain
tensors, outside of torch.func, forward mode and torch.compile.  A second derivative uses the formula.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from reglet.dist import Ranks, concat_over_ranks
from reglet.precision import no_autocast
from reglet.types import Scalar

Formula = Callable[..., Tensor]  # (*views of the whole batch) -> scalar

# (*views of this rank, ranks=, gradient=) -> the value for the whole batch, and if asked the gradient of each view
Kernel = Callable[..., tuple[Tensor, list[Tensor]]]


def shortcut(formula: Formula, kernel: Kernel | None, *views: Tensor, ranks: Ranks) -> Scalar:
    """`formula` of the batch that `ranks` hold together, and its gradient for this rank's views.

    The kernel computes the gradient in the forward pass, so the backward pass need not wait for other ranks.  The
    gradient is multiplied by W, because DDP's average divides by W.  All ranks must use the value in the same way.
    """
    if kernel is None or not plain(*views):
        return formula(*whole(views, ranks))
    if not (torch.is_grad_enabled() and any(z.requires_grad for z in views)):
        return kernel(*views, ranks=ranks, gradient=False)[0]
    out: Tensor = _Shortcut.apply(formula, kernel, ranks, *views)
    return out


def whole(views: Sequence[Tensor], ranks: Ranks) -> Sequence[Tensor]:
    """The views of the whole batch, with a gradient."""
    return views if ranks.size == 1 else concat_over_ranks(torch.stack(list(views)), 1, ranks=ranks).unbind()


def plain(*tensors: Tensor) -> bool:
    """Whether these are ordinary tensors with numbers, from which only an ordinary backward can follow."""
    return (
        not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and getattr(forward_ad, "_current_level", -1) < 0
        and all(type(x) in (Tensor, nn.Parameter) and x.device.type != "meta" for x in tensors)
    )


def by_autograd(formula: Formula, *views: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What a kernel returns, computed from the formula: for inputs that a kernel cannot take."""
    with torch.enable_grad():
        leaves = [z.detach().requires_grad_() for z in views]
        value = formula(*leaves)
        return value.detach(), list(torch.autograd.grad(value, leaves))


class _Shortcut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, formula: Formula, kernel: Kernel, ranks: Ranks, *views: Tensor) -> Tensor:
        value, grads = kernel(*views, ranks=ranks, gradient=True)
        ctx.formula, ctx.ranks = formula, ranks
        ctx.save_for_backward(*views, *grads)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors  # read once: checkpointing hands out each tensor only once
        views, grads = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        if not torch.is_grad_enabled():
            scale = g if ctx.ranks.size == 1 else g * ctx.ranks.size
            return None, None, None, *(grad * scale for grad in grads)
        with no_autocast(g):  # create_graph=True: a second derivative may follow
            value = ctx.formula(*whole(views, ctx.ranks))
            wanted = [z for z, needed in zip(views, ctx.needs_input_grad[3:], strict=True) if needed]
            again = iter(torch.autograd.grad(value, wanted, g, create_graph=True))
        return None, None, None, *(next(again) if needed else None for needed in ctx.needs_input_grad[3:])
