"""Short chains of layers and their gradient, without autograd, and of several alike at once.

Heads are so small that a step of autograd costs more than what it computes: by hand, forward and gradient of a head
take a third of the time, and those of twelve equal heads little more than those of one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.blocks.distances import Standardize

Tokens = Float[Tensor, "h b n _"]  # of h chains
Rows = Sequence[Float[Tensor, "b n _"]]  # what goes into each of them: too large to be copied together
Link = Sequence[nn.Module]  # one layer of each of the h chains: the same class, the same sizes


class Gradient(NamedTuple):
    """at[i]: in front of link i, the last one behind all; and of the parameters of every chain."""

    at: list[Tokens | None]
    parameters: dict[Tensor, Tensor]


def forward(links: Sequence[Link], rows: Rows) -> list[Tokens]:
    """What is between the links, and the output of the last."""
    values: list[Tokens] = []
    with torch.no_grad():
        for link in links:
            values.append(_apply(link, values[-1]) if values else _enter(link, rows))
    return values


def output(links: Sequence[Link], rows: Rows) -> Tokens:
    """Of the last link alone; of no links the rows themselves."""
    return forward(links, rows)[-1] if links else stacked(rows)


def gradient(links: Sequence[Link], rows: Rows, values: Sequence[Tokens], g: Tokens, *, whole: bool) -> Gradient:
    """Of a function of the last of `values` with gradient `g`.  whole: of the rows, too."""
    at: list[Tokens | None] = [None] * len(links) + [g]
    parameters: dict[Tensor, Tensor] = {}
    for i in reversed(range(len(links))):
        before, own = _step(links[i], values[i - 1] if i else rows, values[i], g, inner=whole or i > 0)
        at[i] = before
        g = g if before is None else before
        for parameter, value in own.items():
            parameters[parameter] = parameters[parameter] + value if parameter in parameters else value
    return Gradient(at, parameters)


def weights(link: Link, name: str = "weight") -> Tensor:
    """Of a link of linear layers, one after another."""
    return stacked([getattr(layer, name).detach() for layer in link])


def kind(layer: nn.Module) -> tuple[object, ...]:
    """Equal for layers that can be links of the same chains."""
    if type(layer) is nn.Linear:
        return nn.Linear, layer.weight.shape, _has_bias(layer)
    if type(layer) is Standardize:
        return Standardize, layer.eps
    return (nn.ReLU,) if type(layer) is nn.ReLU else (id(layer),)


def _enter(link: Link, rows: Rows) -> Tokens:
    """The first link."""
    if type(link[0]) is not nn.Linear or len(link) == 1:
        return _apply(link, stacked(rows))
    w = weights(link).mT
    out = rows[0].new_empty(len(link), rows[0].shape[0] * rows[0].shape[1], w.shape[2])
    for x, w_x, y in zip(rows, w, out, strict=True):
        torch.mm(x.flatten(0, 1), w_x, out=y)
    if _has_bias(link[0]):
        out += weights(link, "bias")[:, None]
    return out.unflatten(1, rows[0].shape[:2])


def _apply(link: Link, x: Tokens) -> Tokens:
    if type(link[0]) is nn.Linear:
        rows, w = x.flatten(1, 2), weights(link).mT
        y = torch.baddbmm(weights(link, "bias")[:, None], rows, w) if _has_bias(link[0]) else rows @ w
        return y.unflatten(1, x.shape[1:3])
    if type(link[0]) in (nn.ReLU, Standardize):
        each: Tensor = link[0](x.flatten(0, 1))
        return each.unflatten(0, x.shape[:2])
    return torch.stack([layer(t) for layer, t in zip(link, x, strict=True)])


def _step(
    link: Link, x: Tokens | Rows, y: Tokens, g: Tokens, *, inner: bool
) -> tuple[Tokens | None, dict[Tensor, Tensor]]:
    """The gradient in front of a link, where it is `inner`, and of its parameters."""
    first = link[0]
    if type(first) is nn.Linear:
        rows = g.flatten(1, 2)
        outer = (
            (rows.mT @ x.flatten(1, 2)).unbind()
            if isinstance(x, Tensor)
            else [g_y.T @ t.flatten(0, 1) for g_y, t in zip(rows, x, strict=True)]
        )
        own: dict[Tensor, Tensor] = {
            layer.get_parameter("weight"): value for layer, value in zip(link, outer, strict=True)
        }
        if _has_bias(first):
            own |= {layer.get_parameter("bias"): v for layer, v in zip(link, rows.sum(1).unbind(), strict=True)}
        return (rows @ weights(link)).unflatten(1, g.shape[1:3]) if inner else None, own
    if type(first) is nn.ReLU:
        return torch.ops.aten.threshold_backward(g, y, 0), {}
    x = x if isinstance(x, Tensor) else stacked(x)
    if type(first) is Standardize:
        return first.gradient(x.flatten(0, 1), y.flatten(0, 1), g.flatten(0, 1)).unflatten(0, x.shape[:2]), {}
    found = [_by_autograd(layer, t, g_t) for layer, t, g_t in zip(link, x, g, strict=True)]
    return torch.stack([before for before, _ in found]), {p: value for _, own in found for p, value in own.items()}


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """A view of one tensor; several are copied."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


def _has_bias(layer: nn.Module) -> bool:
    return getattr(layer, "bias", None) is not None


def _by_autograd(
    layer: nn.Module, x: Float[Tensor, "b n _"], g: Float[Tensor, "b n _"]
) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """For a layer that somebody put there."""
    trained = [p for p in layer.parameters() if p.requires_grad]
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        g_x, *found = torch.autograd.grad(layer(leaf), [leaf, *trained], g)
    return g_x, dict(zip(trained, found, strict=True))
