"""Losses on picked tokens that have their gradient ready when they are computed, so that the tokens need not live on.

Backward needs of them only g_h, the gradient behind the first linear layer, which has 2K channels and not C: on a
ResNet-50 an eighth of the memory.  The gradient of the tokens is g_h W, one product, made when backward comes by.

Nothing is saved through autograd: activation checkpointing counts what a region saves, and on recomputing it would miss
this, which looks at each call once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from reglet.blocks import chain
from reglet.blocks.tokens import add, gather

AsTokens = Callable[[Tensor], Float[Tensor, "b t c"]]
Distance = Callable[[Float[Tensor, "b n k"], Float[Tensor, "b n k"]], Tensor]


def pick(y: Tensor, as_tokens: AsTokens, places: Int[Tensor, "b_or_1 n"], dtype: torch.dtype) -> Float[Tensor, "b n c"]:
    """The tokens of y at these places, in `dtype`.  as_tokens: a view of y, or of its gradient, as (b, t, c)."""
    back: list[Tensor] = []
    if y.requires_grad and torch.is_grad_enabled():
        alone = not y._backward_hooks  # nobody else sees, and may keep, the gradient that is written to
        y.register_hook(partial(_put, back, as_tokens, places, alone))
    rows: Tensor = _Pick.apply(y, as_tokens, places, dtype, back)
    return rows


def distances(
    rows: Sequence[Float[Tensor, "b n c"]],
    targets: Float[Tensor, "h b n k"],
    chains: Sequence[Sequence[nn.Module]],
    distance: Distance,
    *,
    stem: int,
) -> Float[Tensor, " h"]:
    """distance(chain(rows), target) of h chains that are alike.  The first `stem` layers are linear."""
    trained = [p for layers in chains for layer in layers for p in layer.parameters() if p.requires_grad]
    values: Tensor = _Distances.apply(targets, chains, distance, stem, len(rows), *rows, *trained)
    return values


class _Pick(torch.autograd.Function):
    """The gradient is zero but at the picked places.  Zeros of y's size, and their sum with what comes from the rest of
    the network, would take longer than all that SIM computes on a transformer.  So backward gives autograd a zero that
    takes no memory, and the rows are put in their places, by a hook on y, when the sum over all that used y is made.
    """

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, as_tokens: AsTokens, places: Tensor, dtype: torch.dtype, back: list[Tensor]
    ) -> Tensor:
        ctx.back, ctx.shape, ctx.dtype = back, y.shape, y.dtype
        return gather(as_tokens(y.detach()), places).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None, None]:
        rows = g.to(ctx.dtype)
        ctx.back.append(rows)
        return rows.new_zeros(()).expand(ctx.shape), None, None, None, None


def _put(back: list[Tensor], as_tokens: AsTokens, places: Tensor, alone: bool, g: Tensor) -> Tensor | None:
    """g: of y, from all that used it.  With the zero of `_Pick` it is a sum that autograd has just made, and nobody
    else's, or that zero itself.
    """
    if not back:
        return None
    fresh = torch.zeros(g.shape, dtype=g.dtype, device=g.device) if 0 in g.stride() else None
    whole = fresh if fresh is not None else g if alone else g.clone()
    tokens = as_tokens(whole)
    if tokens.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr():
        add(tokens, places, back.pop())
        return whole
    whole = whole.contiguous()  # as tokens it was a copy: find every single place
    numbers = torch.arange(g.numel(), dtype=torch.float64, device=g.device).view(g.shape)
    whole.view(-1).index_add_(0, gather(as_tokens(numbers), places).flatten().long(), back.pop().flatten())
    return whole


class _Distances(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, targets: Tensor, chains: Any, distance: Distance, stem: int, heads: int, *tensors: Tensor
    ) -> Tensor:
        rows, trained = tensors[:heads], tensors[heads:]
        links = list(zip(*chains, strict=True))
        with saved_tensors_hooks(_itself, _itself):
            x = [r.detach() for r in rows]
            values = chain.forward(links, x)
            with torch.enable_grad():
                prediction = values[-1].detach().requires_grad_()
                found = _each(distance, prediction, targets)
                (g,) = torch.autograd.grad(found.sum(), prediction)
            gradient = chain.gradient(links, x, values, g, whole=not stem)
        ctx.g_stem = gradient.at[stem]
        ctx.g_trained = [gradient.parameters[p] for p in trained]
        ctx.owner = [
            i for i, layers in enumerate(chains) for layer in layers for p in layer.parameters() if p.requires_grad
        ]
        ctx.weights = [[(layer.weight, layer.weight._version) for layer in link] for link in reversed(links[:stem])]
        return found.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        g_rows: Sequence[Tensor | None] = [None] * len(g)
        if any(ctx.needs_input_grad[5 : 5 + len(g)]):
            at = (g.view(-1, 1, 1, 1) * ctx.g_stem).flatten(1, 2)
            for link in ctx.weights:
                if any(weight._version != version for weight, version in link):
                    raise RuntimeError("the weights of a head changed between forward and backward")
                at = at @ chain.stacked([weight for weight, _ in link])
            g_rows = at.unflatten(1, ctx.g_stem.shape[1:3]).unbind()
        each = len(ctx.g_trained) // len(g)  # chains that are alike have as many parameters
        g_trained = [value * scale for i, scale in enumerate(g.unbind()) for value in ctx.g_trained[i * each :][:each]]
        return None, None, None, None, None, *g_rows, *g_trained


def _each(distance: Distance, u: Float[Tensor, "h b n k"], v: Float[Tensor, "h b n k"]) -> Float[Tensor, " h"]:
    if len(u) == 1:
        return distance(u[0], v[0])[None]
    found: Tensor = torch.vmap(distance)(u, v)
    return found


def _itself(tensor: Tensor) -> Tensor:
    return tensor
