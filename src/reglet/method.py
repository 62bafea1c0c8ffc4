"""The only interface that the trainer knows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.moves import moved
from reglet.types import Terms


@dataclass
class Batch:
    """One rank's part of a step.  Samples are the first axis of every tensor.

    views: of images (n, c, h, w), the global views first, then the local ones, which are smaller.  A clip, a window of
        a series, a video (n, t, c, h, w) or a vector of features is a single view.
    labels: classes (n,), masks (n, h, w) or soft labels (n, classes), if the data have them.
    domain: of each sample, if the data have it.
    draws: what the view policy drew for each view, for methods that predict or undo it.
    actions: (n, t, a), what was done after each frame of a sequence, if the data have it.
    """

    views: Sequence[Tensor]
    n_global: int = 1
    labels: Tensor | None = None
    domain: Tensor | None = None
    draws: Sequence[Any] | None = None
    actions: Tensor | None = None

    def __len__(self) -> int:
        return len(self.views[0])

    def take(self, which: slice) -> "Batch":
        """Some of the samples."""
        return replace(
            self,
            views=[view[which] for view in self.views],
            labels=None if self.labels is None else self.labels[which],
            domain=None if self.domain is None else self.domain[which],
            draws=None if self.draws is None else [draw.take(which) for draw in self.draws],
            actions=None if self.actions is None else self.actions[which],
        )

    def split(self, size: int) -> list["Batch"]:
        """All samples, at most `size` at a time."""
        return [self.take(slice(i, i + size)) for i in range(0, len(self), size)]

    def to(self, device: torch.device) -> "Batch":
        """Moves everything in one copy.  Draws stay on the host, where they are read."""
        about = (self.labels, self.domain, self.actions)
        there = iter(moved([*self.views, *(x for x in about if x is not None)], device))
        views = [next(there) for _ in self.views]
        labels, domain, actions = (None if x is None else next(there) for x in about)
        return replace(self, views=views, labels=labels, domain=domain, actions=actions)


class Method(nn.Module, ABC):
    """A network with its objective.  `forward` does everything, so that DDP, FSDP and compile wrap one object."""

    unclipped: ClassVar[tuple[str, ...]] = ()  # parts that are not clipped: their gradient would dominate the norm

    @abstractmethod
    def forward(self, batch: Batch) -> Terms:
        """The loss of one training step, term by term."""

    def encode(self, x: Float[Tensor, "n ..."]) -> Tensor:
        """What a probe or a score sees: the features of `self.backbone`, if a method does not say otherwise."""
        y: Tensor = self.get_submodule("backbone")(x)
        return y

    def after_step(self, step: int, steps: int) -> None:
        """Moves EMA teachers, queues, centres.  Called after optimizer step `step` of `steps`, counted from 1."""

    def clipped(self) -> list[nn.Parameter]:
        """The parameters whose gradient the loop clips: all except those of the `unclipped` parts."""
        methods = [m for m in self.modules() if isinstance(m, Method)]
        left_out = {p for m in methods for name in m.unclipped for p in m.get_submodule(name).parameters()}
        return [p for p in self.parameters() if p not in left_out]

    def forgets(self, step: int) -> bool:
        """Whether the optimizer forgets its moments after step `step`, because the loss changes there."""
        inner = getattr(self, "method", None)
        return isinstance(inner, Method) and inner.forgets(step)

    def held(self, step: int) -> list[nn.Parameter]:
        """The parameters that do not learn at step `step`, counted from 0.  The loop drops their gradient."""
        inner = getattr(self, "method", None)
        return inner.held(step) if isinstance(inner, Method) else []


class MethodWrapper(Method):
    """A method around another, `self.method`, which does what the wrapper does not."""

    method: Method

    @property
    def backbone(self) -> nn.Module:
        return innermost(self.method).get_submodule("backbone")

    def encode(self, x: Float[Tensor, "n ..."]) -> Tensor:
        return self.method.encode(x)

    def after_step(self, step: int, steps: int) -> None:
        self.method.after_step(step, steps)


def innermost(method: Method) -> Method:
    """The method inside all wrappers."""
    while isinstance(inner := getattr(method, "method", None), Method):
        method = inner
    return method
