"""Gradients of parameters that no DDP wrapper knows, averaged over ranks at the end of every backward pass."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from reglet.dist import sum_over_ranks, world_size


class AveragedGradients:
    """Parameters under watch.  One flat all-reduce, once per backward, after DDP has finished its own."""

    def __init__(self) -> None:
        self._watched: dict[int, nn.Parameter] = {}
        self._on = self._waiting = False

    @torch.compiler.disable
    def watch(self, parameters: Iterable[nn.Parameter], *, on: bool) -> None:
        """Watch these parameters, too.  A sharded one (FSDP2) is left to what sharded it.  In one process nothing is
        done."""
        self._on, self._waiting = on and world_size() > 1, False
        if not self._on:
            return
        for p in parameters:
            if p.requires_grad and id(p) not in self._watched and type(p) is nn.Parameter:
                self._watched[id(p)] = p
                p.register_post_accumulate_grad_hook(self._seen)

    def _seen(self, _parameter: Tensor) -> None:
        """A gradient arrived.  Only some blocks may have run on this rank, so all gradients wait for the end."""
        if self._on and not self._waiting:
            self._waiting = True
            torch.autograd.Variable._execution_engine.queue_callback(self._after_others)

    def _after_others(self) -> None:
        """DDP queues its end of backward during the pass.  A callback queued now comes after it."""
        torch.autograd.Variable._execution_engine.queue_callback(self._average)

    @torch.no_grad()
    def _average(self) -> None:
        self._waiting = False
        every = list(self._watched.values())
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in every]
        flat = sum_over_ranks(torch.cat([g.flatten() for g in grads])) / world_size()
        for p, old, new in zip(every, grads, flat.split([p.numel() for p in every]), strict=True):
            p.grad = old.copy_(new.view_as(p))
