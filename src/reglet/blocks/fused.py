"""A loss on picked tokens that has its gradient ready when it is computed, so that the tokens need not live on.

Backward needs of them only g_h, the gradient behind the first linear layer, which has 2K channels and not C: on a
ResNet-50 an eighth of the memory.  The gradient of the tokens is g_h W, one product, made when backward comes by.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from reglet.blocks import chain
from reglet.blocks.tokens import channels_first, gather, spread
from reglet.types import Scalar


def at_once(
    tokens: Float[Tensor, "b t c"],
    places: Int[Tensor, "b_or_1 n"],
    layers: Sequence[nn.Module],
    distance: Callable[[Tensor], Scalar],
    *,
    stem: int,
    dtype: torch.dtype,
) -> Scalar:
    """distance(layers(tokens at places)), in `dtype`.  The first `stem` layers are linear."""
    trained = [p for layer in layers for p in layer.parameters() if p.requires_grad]
    value: Scalar = _AtOnce.apply(tokens, places, layers, distance, stem, dtype, *trained)
    return value


class _AtOnce(torch.autograd.Function):
    """Saves nothing through autograd: activation checkpointing counts what a region saves, and on recomputing it would
    miss this, which looks at each call once.
    """

    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, places: Tensor, layers: Any, distance: Any, stem: int, dtype: Any, *trained: Any
    ) -> Tensor:
        with saved_tensors_hooks(_itself, _itself):
            values = chain.forward(layers, gather(tokens.detach(), places).to(dtype))
            with torch.enable_grad():
                prediction = values[-1].detach().requires_grad_()
                value: Tensor = distance(prediction)
                (g,) = torch.autograd.grad(value, prediction)
            found = chain.gradient(layers, values, g, whole=not stem)
        ctx.g_stem = found.at[stem]
        ctx.g_trained = [found.parameters[p] for p in trained]
        ctx.weights = [(layer.weight, layer.weight._version) for layer in reversed(layers[:stem])]
        ctx.places, ctx.tokens, ctx.dtype = places, tokens.shape[1], tokens.dtype
        ctx.channels_first = channels_first(tokens)
        return value.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        g_tokens = None
        if ctx.needs_input_grad[0]:
            rows = g * ctx.g_stem
            for weight, version in ctx.weights:
                if weight._version != version:
                    raise RuntimeError("the weights of a head changed between forward and backward")
                rows = rows @ weight
            rows = rows.to(ctx.dtype)
            g_tokens = spread(rows, ctx.places, tokens=ctx.tokens, channels_first=ctx.channels_first)
        g_trained = torch._foreach_mul(ctx.g_trained, g) if ctx.g_trained else []
        return g_tokens, None, None, None, None, None, *g_trained


def _itself(tensor: Tensor) -> Tensor:
    return tensor
