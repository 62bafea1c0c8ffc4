"""A loss on the blocks of a model that somebody else trains: attached, weighted, and saved beside the model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reglet.attach import Attachment, PerBlock, Where, attach
from reglet.attach.features import Regularizer
from reglet.dist import rank, sum_over_ranks, world_size
from reglet.export import read_weights, write_weights
from reglet.schedules import Weight
from reglet.shares import SharedWeight
from reglet.types import BlockLoss

Loss = BlockLoss | PerBlock | Regularizer


class Penalty(nn.Module):
    """`weight` times a loss on the blocks `where` of a model, added to the model's own loss.

        penalty = Penalty(model, "layer*.*", reglet.SIM(), weight=5e-3, example=x)
        optimizer = SGD([*model.parameters(), *penalty.parameters()], lr=0.1)
        loss = penalty(criterion(model(x), y))          # criterion + weight * SIM
        penalty.save("sim.safetensors")

    weight: a number, a schedule (`reglet.set_step(penalty, step)` moves it on), or "share:0.3" of the gradient on the
        model's parameters.
    example: a batch of the model, run once in eval mode to build the heads.  On several ranks all get the first's.
    options: of `reglet.attach`: to=, teacher=, on=, rho=, layout=, name=, ...

    In eval mode of the model, and without gradients, nothing is added.

    >>> from reglet import SIM
    >>> net, x = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3)), torch.randn(4, 3, 12, 12)
    >>> penalty = Penalty(net, "1", SIM(), weight="share:0.3", example=x)
    >>> task = net(x).square().mean()
    >>> bool(penalty(task) > task)
    True
    """

    _model: nn.Module

    def __init__(
        self,
        model: nn.Module,
        where: Where | Mapping[str, Where],
        loss: Loss,
        *,
        weight: Weight,
        example: Any,
        **options: Any,
    ) -> None:
        super().__init__()
        self.weight = SharedWeight(weight)
        self.attachment: Attachment = attach(model, where, loss, example=example, **options)
        object.__setattr__(self, "_model", model)  # no child: it is trained and saved by its owner
        self.last = torch.zeros(())  # what was added last, without its graph
        self.same_on_all_ranks()

    def forward(self, task: Tensor, *, portion: float | Tensor = 1.0) -> Tensor:
        """`task`, the model's own loss, with the penalty added.  Once for each training forward, before backward.

        portion: of the penalty, for a frame that sums the parts of a batch instead of averaging them.
        """
        own = self.attachment.loss()
        if not own.requires_grad:  # evaluation: no block was followed
            return task
        added = self.weight(own * portion, task, on=self._model.parameters())
        self.last = added.detach()
        return task + added

    def remove(self) -> None:
        """Take every trace off the model."""
        self.attachment.remove()

    def save(self, path: str | Path) -> None:
        """The heads and the weight of a share, as safetensors; written whole or not at all."""
        write_weights(self, Path(path))

    def load(self, path: str | Path) -> None:
        """What `save` wrote, of the same blocks and the same loss."""
        read_weights(self, Path(path))

    @torch.no_grad()
    def same_on_all_ranks(self) -> None:
        """The heads of the first rank on all of them: they were drawn at random, on each rank by itself."""
        if world_size() == 1:
            return
        for tensor in [*self.parameters(), *self.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(sum_over_ranks(tensor if rank() == 0 else torch.zeros_like(tensor)))
