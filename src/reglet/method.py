"""The one interface the trainer knows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from reglet.types import Terms


@dataclass
class Batch:
    """One rank's share of a step.

    views: global views first, then local ones; each (n, c, h, w), local ones smaller.
    labels, domain: where the data has them.
    draws: what the view policy drew for each view, for methods that predict or undo it.
    """

    views: Sequence[Float[Tensor, "n c _ _"]]
    n_global: int
    labels: Int[Tensor, " n"] | None = None
    domain: Int[Tensor, " n"] | None = None
    draws: Sequence[Any] | None = None


class Method(nn.Module, ABC):
    """A network with its objective.  `forward` does everything, so that DDP, FSDP and compile wrap one object."""

    @abstractmethod
    def forward(self, batch: Batch) -> Terms:
        """One training step's loss, term by term."""

    @abstractmethod
    def encode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        """The features a probe sees: the backbone's, or the teacher's."""

    def after_step(self, step: int, steps: int) -> None:
        """EMA teachers, queues, centres.  Called after optimizer step `step` of `steps`, counted from 1."""
