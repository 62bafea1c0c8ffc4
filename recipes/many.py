"""Many seeds of one small method trained side by side: their weights are stacked, and every step is one `vmap`.

Twenty adapters on frozen features take a fraction of the time that they take one after the other.  The loss is the sum
over seeds, so each seed's weights have the gradient that they would have alone; Adam moves every number by its own
gradient.  Each seed has its own first weights, split and batches.  Only dropout and other noise come from one stream.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from reglet.engine.feed import Order
from reglet.method import Batch, Method
from reglet.types import Terms


class Many(Method):
    """Copies of a method that differ in their weights.  A batch has samples first and copies second: x (n, s, ...)."""

    def __init__(self, copies: Sequence[Method]) -> None:
        super().__init__()
        weights, buffers = stack_module_state([copy.train() for copy in copies])
        if buffers:
            raise ValueError(f"copies have weights alone, got the buffers {', '.join(buffers)}")
        self.names = list(weights)
        self.stacked = nn.ParameterList([nn.Parameter(value.detach()) for value in weights.values()])
        self.one = (copies[0],)  # in a tuple, so that it is no part of this module

    def forward(self, batch: Batch) -> Terms:
        (x,), y = batch.views, batch.labels
        if y is None:
            raise ValueError("copies are trained on labelled samples, and this batch has no labels")

        def terms(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Terms:
            found: Terms = functional_call(self.one[0], weights, (Batch([x], labels=y),))
            return found

        weights = dict(zip(self.names, self.stacked, strict=True))
        each = vmap(terms, in_dims=(0, 1, 1), randomness="different")(weights, x, y)
        return {name: value.sum() for name, value in each.items()}

    def encode(self, x: Tensor) -> Tensor:
        raise NotImplementedError("copies are taken apart before they encode")

    def after_step(self, step: int, steps: int) -> None:
        self.one[0].after_step(step, steps)

    def apart(self) -> list[Method]:
        """Each copy with its own weights."""
        found = []
        for i in range(len(self.stacked[0])):
            copy: Any = deepcopy(self.one[0])
            own = {name: value[i].detach() for name, value in zip(self.names, self.stacked, strict=True)}
            copy.load_state_dict(own)
            found.append(copy)
        return found


class SideBySide:
    """The orders of several seeds as one: `indices` are (n, s)."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self.orders = orders
        self.seed, self.batch, self.per_epoch = orders[0].seed, orders[0].batch, orders[0].per_epoch

    def indices(self, step: int) -> Int64[Tensor, "n s"]:
        return torch.stack([order.indices(step) for order in self.orders], 1)
