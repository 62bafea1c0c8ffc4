"""The weight of a penalty that waits until the network has learnt something."""

import torch
from torch import Tensor

from reglet.methods.domains.base import OnDomains


class Annealed(OnDomains):
    """A penalty's weight: `before` for the first `anneal` optimizer steps, `weight` after them.

    DomainBed also makes a new Adam at the switch, for its second moments are those of another loss.  A loss has no
    optimizer: whoever steps it does so after step `anneal`, if wanted.
    """

    current: Tensor  # saved with the state, so that a resumed run goes on with it

    def __init__(self, *, weight: float, before: float, anneal: int) -> None:
        super().__init__()
        if anneal < 0:
            raise ValueError(f"the number of steps before the switch is not negative, got {anneal}")
        self.weight, self.before, self.anneal = weight, before, anneal
        self.register_buffer("current", torch.tensor(float(before if anneal else weight)))

    def after_step(self, step: int) -> None:
        self.current.fill_(self.before if step < self.anneal else self.weight)
