"""Computes equal heads together: the weights of a transformer's twelve heads are stacked into one batched product."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.blocks.distances import Standardize

Tokens = Float[Tensor, "h b n _"]  # of h heads
Layers = Sequence[nn.Module]


def run_together(heads: Sequence[Layers], x: Tokens) -> Tokens:
    """x[i] through the layers heads[i], in the precision of x.  All heads have the same `kind`."""
    for layer in zip(*heads, strict=True):
        x = _run(layer, x)
    return x


def kind(layers: Layers) -> tuple[Any, ...]:
    """Equal for heads that `run_together` can compute together."""
    return tuple(_kind(layer) for layer in layers)


def _kind(layer: nn.Module) -> tuple[Any, ...]:
    if not _is_plain(layer):
        return (id(layer),)
    if isinstance(layer, nn.Linear):
        return nn.Linear, tuple(layer.weight.shape), layer.bias is None
    return type(layer), getattr(layer, "eps", None)


def _is_plain(layer: nn.Module) -> bool:
    """Whether a call of the layer does nothing besides its formula."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return type(layer) in (nn.Linear, nn.ReLU, Standardize) and not hooked


def _run(layers: Layers, x: Tokens) -> Tokens:
    """One layer of every head."""
    if not _is_plain(layers[0]):
        return torch.stack([layer(rows) for layer, rows in zip(layers, x, strict=True)])
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if not linear:
        y: Tensor = layers[0](x)
        return y
    weight = _stack([layer.weight for layer in linear], x)
    rows = x.flatten(1, 2)
    biases: list[Tensor | None] = [layer.bias for layer in linear]
    if biases[0] is None:
        y = torch.bmm(rows, weight.mT)
    else:
        y = torch.baddbmm(_stack([b for b in biases if b is not None], x)[:, None], rows, weight.mT)
    return y.unflatten(1, x.shape[1:3])


def _stack(parameters: Sequence[Tensor], like: Tensor) -> Tensor:
    """In the precision of `like`: even the heads of a bfloat16 network compute in float32."""
    stacked = parameters[0][None] if len(parameters) == 1 else torch.stack(list(parameters))
    return stacked.to(like.dtype)
