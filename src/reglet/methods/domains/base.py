"""Shared parts of domain losses: one call of the classifier, and the risk of each domain."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.latent.classify import Head, classify, finished
from reglet.precision import at_least_float32, no_autocast, of_one_dtype
from reglet.types import Scalar, Terms, total


class OnDomains(nn.Module, ABC):
    """A loss on minibatches of several domains: `loss(latents, labels, head)`, a list of latents and one of labels.

    Calling it gives the scalar, `.terms` its weighted parts by name.  All domains have the same weight, whatever their
    number of samples.  Everything except the head is computed in float32, whatever autocast says.  Under DDP each rank
    has the loss of its own minibatches.

    >>> from reglet.methods.domains import VREx
    >>> isinstance(VREx(), OnDomains)
    True
    """

    least_domains: ClassVar[int] = 1
    least_samples: ClassVar[int] = 1
    degree: ClassVar[int] = 1  # the loss and its gradient grow at most as this power of the latents

    def forward(self, z: Sequence[Tensor], y: Sequence[Tensor], head: Head) -> Scalar:
        return total(self.terms(z, y, head))

    def terms(self, z: Sequence[Tensor], y: Sequence[Tensor], head: Head) -> Terms:
        name = type(self).__name__
        require_domains(name, z, domains=self.least_domains, samples=self.least_samples)
        if len(y) != len(z):
            raise ValueError(f"{name}: latents of {len(z)} domains, labels of {len(y)}")
        self._require_moderate(name, z)
        logits = classify(head, *z)
        for each, labels in zip(logits, y, strict=True):
            check.labels(labels, n=len(each), classes=each.shape[1])
        with no_autocast(logits[0]):
            found = self.compute(of_one_dtype(z), logits, y)
        return finished(name, found, *z)

    @abstractmethod
    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        """The maths, for each domain e its latents z[e], logits[e] and labels y[e]."""

    def _require_moderate(self, name: str, z: Sequence[Tensor]) -> None:
        if self.degree > 1 and check.readable(z[0]):
            largest = torch.stack([at_least_float32(each.detach()).abs().max() for each in z]).max()
            check.no_overflow(name, {f"power {self.degree} of the latents": largest**self.degree}, *z)

    def after_step(self, step: int) -> None:
        """Called after optimizer step `step`, counted from 1: for weights that change in time."""


def require_domains(name: str, z: Sequence[Tensor], *, domains: int, samples: int) -> None:
    """At least so many domains of so many samples each, all of one width."""
    sizes = [len(each) if isinstance(each, Tensor) and each.ndim else 0 for each in z]
    if len(z) < domains or min(sizes, default=0) < samples:
        raise ValueError(
            f"{name} needs at least {domains} domains of {samples} samples each, got {sizes or 'none'}. "
            "Batches(domain, per_domain=...) draws from every domain."
        )
    for e, each in enumerate(z):
        check.tensor(f"{name}: domain {e}", each, None, z[0].shape[-1] if e else None)


def risks(logits: Sequence[Float[Tensor, "_ k"]], y: Sequence[Tensor]) -> Float[Tensor, "e"]:
    """R_e, the mean cross-entropy of each domain.  Labels are class indices or rows of probabilities."""
    return torch.stack([F.cross_entropy(each, _target(each, labels)) for each, labels in zip(logits, y, strict=True)])


def _target(logits: Tensor, y: Tensor) -> Tensor:
    return y.to(logits.dtype) if y.is_floating_point() else y.long()
