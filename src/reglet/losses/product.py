"""a @ b in the precision of its factors, backward too.

Autocast acts when an operation runs.  Whoever calls `backward()` inside an autocast block has the gradient of a plain
product rounded to half precision, though the product itself was computed outside of autocast.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def product(a: Float[Tensor, "n d"], b: Float[Tensor, "d m"]) -> Float[Tensor, "n m"]:
    out: Tensor = _Product.apply(a, b)
    return out


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        with torch.autocast(g.device.type, enabled=False):
            return product(g, b.T), product(a.T, g)

    @staticmethod
    def jvp(ctx: Any, da: Tensor | None, db: Tensor | None) -> Tensor:
        a, b = ctx.saved_tensors
        with torch.autocast(a.device.type, enabled=False):
            left = 0 if da is None else da @ b
            right = 0 if db is None else a @ db
            return torch.as_tensor(left + right)
