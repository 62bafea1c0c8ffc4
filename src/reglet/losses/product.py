"""a @ b in the precision of its factors, in the backward pass too.

Autocast acts at the time an operation runs.  When `backward()` is called inside an autocast block, the gradient of a
plain product is rounded to half precision, even if the product was computed outside.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.precision import no_autocast


def product(a: Float[Tensor, "n d"], b: Float[Tensor, "d m"]) -> Float[Tensor, "n m"]:
    if not torch.is_grad_enabled():  # in kernels: no backward can follow
        return a @ b
    out: Tensor = _Product.apply(a, b)
    return out


class _Product(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        with no_autocast(g):
            if not torch.is_grad_enabled():  # no second derivative can follow
                return g @ b.T, a.T @ g
            return product(g, b.T), product(a.T, g)

    @staticmethod
    def jvp(ctx: Any, da: Tensor | None, db: Tensor | None) -> Tensor:
        a, b = ctx.saved_tensors
        with no_autocast(a):
            left = 0 if da is None else da @ b
            right = 0 if db is None else a @ db
            return torch.as_tensor(left + right)
