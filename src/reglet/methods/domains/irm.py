"""Invariant risk minimization.  Arjovsky et al., 2019, arXiv:1907.02893."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.latent.classify import targets_for
from reglet.methods.domains.annealed import Annealed
from reglet.methods.domains.base import require_domains, risks
from reglet.precision import at_least_float32, no_autocast
from reglet.schedules import Weight
from reglet.types import Scalar, Terms


def scale_gradient(logits: Float[Tensor, "n k"], y: Tensor) -> Float[Tensor, "n"]:
    """d CE(s logits_i, y_i) / ds at s = 1, which is <softmax(l_i) - y_i, l_i>, for every sample."""
    targets = targets_for(y, logits)
    return ((logits.softmax(1) - targets) * logits).sum(1)


def irm_penalty(logits: Float[Tensor, "n k"], y: Tensor) -> Scalar:
    """g_even g_odd: the mean scale gradient of the even samples times that of the odd ones.

    The paper's penalty is the square of the expected gradient.  Two halves without a common sample estimate it without
    bias; the square of one batch's gradient would add the batch's variance.

    >>> irm_penalty(torch.zeros(8, 3), torch.arange(8) % 3).item()  # nothing to scale
    0.0
    """
    require_domains("irm_penalty", [logits], domains=1, samples=2)
    with no_autocast(logits):
        g = scale_gradient(at_least_float32(logits), y)
        penalty = g[::2].mean() * g[1::2].mean()
        square = logits.detach().abs().amax() * g.detach().abs().amax()  # the gradient contains such products
    check.no_overflow("irm_penalty", {"the penalty": penalty, "the square of the logits": square}, logits)
    return penalty


class IRM(Annealed):
    """1/E sum_e R_e + weight 1/E sum_e penalty_e (IRMv1), with `irm_penalty` as in DomainBed.

    weight: 1 for the first 500 steps, then 100, DomainBed's defaults; see `Annealed`.

    >>> z, y, head = torch.randn(2, 8, 4).unbind(), (torch.arange(8) % 3,) * 2, torch.nn.Linear(4, 3)
    >>> list(IRM().terms(z, y, head))
    ['risk', 'penalty']
    """

    least_samples: ClassVar[int] = 2
    degree: ClassVar[int] = 2

    def __init__(self, *, weight: Weight = 100.0, before: float = 1.0, anneal: int = 500) -> None:
        super().__init__(weight=weight, before=before, anneal=anneal)

    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        risk = risks(logits, y).mean()
        penalty = torch.stack([irm_penalty(each, labels) for each, labels in zip(logits, y, strict=True)]).mean()
        return {"risk": risk, "penalty": self.penalty(penalty)}
