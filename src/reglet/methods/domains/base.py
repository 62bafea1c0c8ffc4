"""What every domain loss does before its maths: one call of the classifier, and the risk of each domain."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.types import Scalar, Terms, total

Head = Callable[[Tensor], Tensor]


class OnDomains(nn.Module, ABC):
    """A loss on minibatches of several domains: `loss(latents, labels, head)`, a list of latents and one of labels.

    Calling it gives the scalar, `.terms` its weighted parts by name.  Domains weigh the same whatever their number of
    samples.  Everything is computed in float32 whatever autocast says, except the head, which is the caller's.
    Under DDP each rank has the loss of its own minibatches.
    """

    least_domains: ClassVar[int] = 1
    least_samples: ClassVar[int] = 1

    def forward(self, z: Sequence[Tensor], y: Sequence[Tensor], head: Head) -> Scalar:
        return total(self.terms(z, y, head))

    def terms(self, z: Sequence[Tensor], y: Sequence[Tensor], head: Head) -> Terms:
        self._check(z, y)
        logits = head(torch.cat(list(z)))
        with torch.autocast(logits.device.type, enabled=False):
            return self.compute([_wide(each) for each in z], list(_wide(logits).split([len(each) for each in z])), y)

    @abstractmethod
    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        """The maths, for each domain e its latents z[e], logits[e] and labels y[e]."""

    def after_step(self, step: int) -> None:
        """Called after optimizer step `step`, counted from 1: for weights that change in time."""

    def _check(self, z: Sequence[Tensor], y: Sequence[Tensor]) -> None:
        name, sizes = type(self).__name__, [len(each) for each in z]
        if len(z) != len(y) or sizes != [len(each) for each in y]:
            raise ValueError(f"{name}: latents of {sizes} samples by domain, labels of {[len(each) for each in y]}")
        if len(z) < self.least_domains or min(sizes) < self.least_samples:
            raise ValueError(
                f"{name} needs at least {self.least_domains} domains of {self.least_samples} samples each, "
                f"got {sizes or 'none'}. Batches(domain, per_domain=...) draws from every domain."
            )


def risks(logits: Sequence[Float[Tensor, "_ k"]], y: Sequence[Tensor]) -> Float[Tensor, "e"]:
    """R_e, the mean cross-entropy of each domain.  Labels are class indices or rows of probabilities."""
    for each, labels in zip(logits, y, strict=True):
        if not labels.is_floating_point() and (int(labels.min()) < 0 or int(labels.max()) >= each.shape[1]):
            raise ValueError(
                f"class labels are below {each.shape[1]}, got values {int(labels.min())}..{int(labels.max())}"
            )
    return torch.stack([F.cross_entropy(each, labels) for each, labels in zip(logits, y, strict=True)])


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
