"""A moving average of the weights, theta' = decay theta' + (1 - decay) theta.  Buffers are copied."""

from copy import deepcopy

import torch
from torch import Tensor, nn


class MovingAverage(nn.Module):
    """The average starts as a copy of `module`.  It stays float32 even if `module` becomes bfloat16, in which a change
    of a thousandth would be rounded away.
    """

    def __init__(self, module: nn.Module, *, decay: float) -> None:
        super().__init__()
        self.module, self.decay = deepcopy(module).requires_grad_(False), decay

    @torch.no_grad()
    def update(self, module: nn.Module, *, first: bool) -> None:
        """Called after each step.  After the `first` one the average equals the weights."""
        mine: list[Tensor] = list(self.module.parameters())
        theirs = [p.to(q.dtype) for p, q in zip(module.parameters(), mine, strict=True)]
        torch._foreach_lerp_(mine, theirs, 1.0 if first else 1 - self.decay)
        for buffer, its in zip(self.module.buffers(), module.buffers(), strict=True):
            buffer.copy_(its)
