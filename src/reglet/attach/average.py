"""Averages gradients over ranks at the end of every backward pass, for parameters that no DDP wrapper knows."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from reglet.dist import sum_over_ranks, world_size


class AveragedGradients:
    """Averages the gradients of watched parameters.  One flat all-reduce for each backward, after DDP has finished."""

    def __init__(self) -> None:
        self._watched: dict[int, nn.Parameter] = {}
        self._on = self._waiting = False

    @torch.compiler.disable
    def watch(self, parameters: Iterable[nn.Parameter], *, on: bool) -> None:
        """Watch these parameters, too.  Sharded ones (FSDP2) are left out.  In one process nothing is done."""
        self._on, self._waiting = on and world_size() > 1, False
        if not self._on:
            return
        for p in parameters:
            if p.requires_grad and id(p) not in self._watched and type(p) is nn.Parameter:
                self._watched[id(p)] = p
                p.register_post_accumulate_grad_hook(self._seen)

    def _seen(self, _parameter: Tensor) -> None:
        """Called when a gradient arrives.  All wait for the end, because only some blocks may have run on this rank."""
        if self._on and not self._waiting:
            self._waiting = True
            torch.autograd.Variable._execution_engine.queue_callback(self._after_others)

    def _after_others(self) -> None:
        """DDP queues its own callback during the pass.  A callback queued now comes after it."""
        torch.autograd.Variable._execution_engine.queue_callback(self._average)

    @torch.no_grad()
    def _average(self) -> None:
        self._waiting = False
        every = list(self._watched.values())
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in every]
        flat = sum_over_ranks(torch.cat([g.flatten() for g in grads])) / world_size()
        for p, old, new in zip(every, grads, flat.split([p.numel() for p in every]), strict=True):
            p.grad = old.copy_(new.view_as(p))
