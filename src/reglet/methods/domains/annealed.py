"""A penalty that waits until the network has learnt something."""

import torch
from torch import Tensor

from reglet import check
from reglet.methods.domains.base import OnDomains
from reglet.schedules import Scheduled, Weight, checked_weight


class Annealed(Scheduled, OnDomains):
    """A penalty with the weight `before` for the first `anneal` optimizer steps, and `weight` after them.

    weight: a number, or a schedule of the step; see `reglet.schedules`.

    DomainBed also makes a new Adam at the switch, because the second moments belong to another loss.  A loss has no
    optimizer, so the training loop must do that after step `anneal`.
    """

    current: Tensor  # saved with the state, so that a resumed run goes on with it

    def __init__(self, *, weight: Weight, before: float, anneal: int) -> None:
        super().__init__()
        check.not_negative(before=before)
        check.whole(0, anneal=anneal)
        self.weight, self.before, self.anneal = checked_weight("weight", weight), before, anneal
        self.register_buffer("current", torch.tensor(self._weight(0)))

    def set_step(self, step: int, steps: int | None = None) -> None:
        super().set_step(step, steps)
        self.current.fill_(self._weight(step))

    def after_step(self, step: int) -> None:
        """Sets the weight of the next step, whose number is `step`, counted from 0."""
        self.set_step(step, self._steps)

    def penalty(self, value: Tensor) -> Tensor:
        """`value` at its weight in this step."""
        if callable(self.weight) and self._step is None and not self.anneal:
            self.now("weight")  # raises, and says that the step is unknown
        return self.current.to(value.dtype) * value

    def _weight(self, step: int) -> float:
        if step < self.anneal:
            return float(self.before)
        return float("nan") if callable(self.weight) and self._step is None else self.now("weight")
