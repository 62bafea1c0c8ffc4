"""A short chain of layers and its gradient, without autograd.

Heads are so small that a step of autograd costs more than what it computes: by hand, forward and gradient of a head
take a third of the time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.blocks.distances import Standardize

Tokens = Float[Tensor, "b n _"]


class Gradient(NamedTuple):
    """at[i]: of values[i]; and of the parameters."""

    at: list[Tokens | None]
    parameters: dict[Tensor, Tensor]


def forward(layers: Sequence[nn.Module], x: Tokens) -> list[Tokens]:
    """The input of every layer, and the output of the last."""
    values = [x]
    with torch.no_grad():
        for layer in layers:
            values.append(layer(values[-1]))
    return values


def gradient(layers: Sequence[nn.Module], values: Sequence[Tokens], g: Tokens, *, whole: bool) -> Gradient:
    """Of a function of the last of `values` with gradient `g`.  whole: of the first, too."""
    at: list[Tokens | None] = [None] * len(layers) + [g]
    parameters: dict[Tensor, Tensor] = {}
    for i in reversed(range(len(layers))):
        before, own = _step(layers[i], values[i], values[i + 1], g, inner=whole or i > 0)
        at[i] = before
        g = g if before is None else before
        for parameter, value in own.items():
            parameters[parameter] = parameters[parameter] + value if parameter in parameters else value
    return Gradient(at, parameters)


def _step(
    layer: nn.Module, x: Tokens, y: Tokens, g: Tokens, *, inner: bool
) -> tuple[Tokens | None, dict[Tensor, Tensor]]:
    """The gradient in front of a layer, where it is `inner`, and of its parameters."""
    if type(layer) is nn.Linear:
        rows = g.flatten(0, 1)
        own: dict[Tensor, Tensor] = {layer.weight: rows.T @ x.flatten(0, 1)}
        if layer.bias is not None:
            own[layer.bias] = rows.sum(0)
        return g @ layer.weight.detach() if inner else None, own
    if type(layer) is nn.ReLU:
        return torch.ops.aten.threshold_backward(g, y, 0), {}
    if type(layer) is Standardize:
        return layer.gradient(x, y, g), {}
    return _by_autograd(layer, x, g)


def _by_autograd(layer: nn.Module, x: Tokens, g: Tokens) -> tuple[Tokens, dict[Tensor, Tensor]]:
    """For a layer that somebody put there."""
    trained = [p for p in layer.parameters() if p.requires_grad]
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        g_x, *found = torch.autograd.grad(layer(leaf), [leaf, *trained], g)
    return g_x, dict(zip(trained, found, strict=True))
