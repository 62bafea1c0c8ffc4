"""A moving average of the weights: theta' = decay theta' + (1 - decay) theta, buffers as they are."""

from copy import deepcopy

import torch
from torch import Tensor, nn


class MovingAverage(nn.Module):
    """It starts as `module` is now.  float32 weights are averaged in float32, even where `module` becomes bfloat16:
    that would round a thousandth of a weight away.
    """

    def __init__(self, module: nn.Module, *, decay: float) -> None:
        super().__init__()
        self.module, self.decay = deepcopy(module).requires_grad_(False), decay

    @torch.no_grad()
    def update(self, module: nn.Module, *, first: bool) -> None:
        """After a step; after the `first` one the average is that step's weights."""
        mine: list[Tensor] = list(self.module.parameters())
        theirs = [p.to(q.dtype) for p, q in zip(module.parameters(), mine, strict=True)]
        torch._foreach_lerp_(mine, theirs, 1.0 if first else 1 - self.decay)
        for buffer, its in zip(self.module.buffers(), module.buffers(), strict=True):
            buffer.copy_(its)
