"""A loss on picked tokens that has its gradient ready when it is computed, so that the tokens need not live on.

Backward needs of them only g_h, the gradient behind the first linear layer, which has 2K channels and not C: on a
ResNet-50 an eighth of the memory.  The gradient of the tokens is g_h W, one product, made when backward comes by.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from reglet.blocks.tokens import channels_first, gather, spread
from reglet.types import Scalar


def at_once(
    tokens: Float[Tensor, "b t c"],
    places: Int[Tensor, "b_or_1 n"],
    first: nn.Sequential,
    rest: Callable[[Tensor], Scalar],
    parameters: list[nn.Parameter],
    *,
    dtype: torch.dtype,
) -> Scalar:
    """rest(first(tokens at places)), in `dtype`.  `first` has linear layers only; `parameters` are those of both
    that are trained."""
    value: Scalar = _AtOnce.apply(tokens, places, first, rest, dtype, *parameters)
    return value


class _AtOnce(torch.autograd.Function):
    """Saves nothing through autograd: activation checkpointing counts what a region saves, and on recomputing it would
    miss this, which looks at each call once.
    """

    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, places: Tensor, first: Any, rest: Any, dtype: torch.dtype, *parameters: Any
    ) -> Tensor:
        with torch.enable_grad(), saved_tensors_hooks(_itself, _itself):
            h = first(gather(tokens.detach(), places).to(dtype))
            h = h if h.requires_grad else h.requires_grad_()
            value: Tensor = rest(h)
            ctx.g_h, *ctx.g_parameters = torch.autograd.grad(value, [h, *parameters])
        ctx.weights = [(layer.weight, layer.weight._version) for layer in reversed(first)]
        ctx.places, ctx.tokens, ctx.dtype = places, tokens.shape[1], tokens.dtype
        ctx.channels_first = channels_first(tokens)
        return value.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        g_tokens = None
        if ctx.needs_input_grad[0]:
            rows = g * ctx.g_h
            for weight, version in ctx.weights:
                if weight._version != version:
                    raise RuntimeError("the weights of a head changed between forward and backward")
                rows = rows @ weight
            rows = rows.to(ctx.dtype)
            g_tokens = spread(rows, ctx.places, tokens=ctx.tokens, channels_first=ctx.channels_first)
        return g_tokens, None, None, None, None, *(g * own for own in ctx.g_parameters)


def _itself(tensor: Tensor) -> Tensor:
    return tensor
