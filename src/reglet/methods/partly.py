"""Any method with a partly frozen backbone, or with a backbone that waits until the heads have learned."""

from torch import nn

from reglet import check
from reglet.method import Batch, Method, MethodWrapper
from reglet.probes.layer_decay import depths
from reglet.schedules import Scheduled
from reglet.types import Terms


class Partly(Scheduled, MethodWrapper):
    """`method`, with the frozen parts of its backbone in eval mode.

    A part is frozen if all of its weights have requires_grad=False.  Its batch norms keep their statistics, and it has
    no dropout.

    heads_first: the number of steps (below 1: the share of all steps) in which the backbone does not move, and only the
        projector and other heads learn.  Otherwise random heads would send a meaningless gradient into pretrained
        weights.

    >>> import torch
    >>> from reglet.backbones import vit_mini
    >>> from reglet.methods import Supervised
    >>> net = vit_mini(size=16)
    >>> freeze_all_but_last(net, 2)
    >>> method = Partly(Supervised(net, classes=2), heads_first=10).train()
    >>> net.blocks[3].training, net.blocks[4].training, len(method.held(9)) > 0, len(method.held(10))
    (False, True, True, 0)
    """

    def __init__(self, method: Method, *, heads_first: int | float = 0) -> None:
        super().__init__()
        check.not_negative(heads_first=heads_first)
        if not 0 <= heads_first < 1 and heads_first != int(heads_first):
            raise ValueError(f"heads_first is a number of steps, or a share below 1; got {heads_first}")
        self.method, self.heads_first = method, heads_first

    def train(self, mode: bool = True) -> "Partly":
        super().train(mode)
        if mode and self._step is not None and self._waits(self._step):
            self.backbone.eval()
        elif mode:
            for part in self.backbone.modules():
                weights = list(part.parameters())
                if weights and not any(p.requires_grad for p in weights):
                    part.eval()
        return self

    def forward(self, batch: Batch) -> Terms:
        terms: Terms = self.method(batch)
        return terms

    def held(self, step: int) -> list[nn.Parameter]:
        return [*super().held(step), *(self.backbone.parameters() if self._waits(step) else ())]

    def _waits(self, step: int) -> bool:
        if not 0 < self.heads_first < 1:
            return step < self.heads_first
        if self._steps is None:
            raise RuntimeError(
                "heads_first is a share of all steps: call reglet.set_step(method, step, steps) to say how many"
            )
        return step < round(self.heads_first * self._steps)


def freeze_all_but_last(backbone: nn.Module, n: int) -> None:
    """Only the last `n` blocks, and what follows them, are trained.

    >>> from reglet.backbones import vit_mini
    >>> net = vit_mini(size=16)
    >>> freeze_all_but_last(net, 1)
    >>> sorted({name.split(".")[0] + "." + name.split(".")[1] for name, p in net.named_parameters() if p.requires_grad})
    ['blocks.5', 'norm.bias', 'norm.weight']
    """
    check.whole(1, last_blocks=n)
    depth, top = depths(backbone)
    if n > top - 1:
        raise ValueError(f"{type(backbone).__name__} has {top - 1} blocks; got last_blocks={n}")
    for name, p in backbone.named_parameters():
        p.requires_grad_(p.requires_grad and depth[name] >= top - n)
