"""Shared parts of latent losses: one call of the classifier for all latents, and cross-entropy with soft labels."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.latent.mixup import soft_labels
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar, Terms

Head = Callable[[Tensor], Tensor]


@runtime_checkable
class Criterion(Protocol):
    """A change of the logits before the softmax, such as balanced softmax and logit adjustment in `reglet.tails`.

    >>> from reglet.tails import BalancedSoftmax
    >>> BalancedSoftmax([90, 10]).adjust(torch.zeros(1, 2)).argmax().item()
    0
    """

    def adjust(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]: ...


def checked_criterion(criterion: Criterion | None) -> Criterion | None:
    if criterion is not None and not isinstance(criterion, Criterion):
        raise TypeError(f"criterion must have adjust(logits), as BalancedSoftmax does; got {type(criterion).__name__}")
    return criterion


def classify(head: Head, *latents: Float[Tensor, "_ d"]) -> list[Float[Tensor, "_ k"]]:
    """The logits of each set of latents, in float32 at least, by one call of the head on all sets.

    A head that is a module gets latents in the precision of its weights; any other head, in that of the first set.  The
    caller's autocast holds inside the head.
    """
    for z in latents:
        check.tensor("latents", z, None, latents[0].shape[-1])
    z = torch.cat([in_precision_of(head, each, latents[0]) for each in latents])
    if isinstance(head, nn.Linear) and head.in_features != z.shape[1]:
        raise ValueError(f"the latents have width {z.shape[1]}, and the head takes {head.in_features}")
    logits = head(z)
    if logits.ndim != 2 or len(logits) != len(z):
        raise ValueError(f"a head makes logits (n, classes) of latents {tuple(z.shape)}, got {tuple(logits.shape)}")
    return list(at_least_float32(logits).split([len(each) for each in latents]))


def log_probabilities(
    head: Head, *latents: Float[Tensor, "n d"], criterion: Criterion | None = None
) -> list[Float[Tensor, "n k"]]:
    """log softmax(head(z)) for each set of latents (see `classify`), in float32 at least."""
    every = classify(head, *latents)
    with no_autocast(every[0]):
        return [(logits if criterion is None else criterion.adjust(logits)).log_softmax(1) for logits in every]


def targets_for(y: Tensor, log_p: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """The labels as rows of probabilities, checked against the output of the head."""
    check.labels(y, n=len(log_p), classes=log_p.shape[1])
    return soft_labels(y, num_classes=log_p.shape[1]).to(log_p.dtype)


def cross_entropy(log_p: Float[Tensor, "n k"], targets: Float[Tensor, "n k"]) -> Scalar:
    """- 1/n sum_i <y_i, log p_i>"""
    return -(targets * log_p).sum(1).mean()


def entropy(targets: Float[Tensor, "n k"]) -> Scalar:
    """The entropy H(ybar) of the mean label.  No cross-entropy with ybar can be smaller."""
    return torch.special.entr(targets.mean(0)).sum()


def in_precision_of(weights: object, z: Tensor, otherwise: Tensor) -> Tensor:
    """z in the precision of a module's weights, or in that of `otherwise` if it has none."""
    found = weights.parameters() if isinstance(weights, nn.Module) else iter(())
    return z.to(next((w.dtype for w in found if w.is_floating_point()), otherwise.dtype))


def finished(name: str, terms: Terms, *latents: Tensor) -> Terms:
    """The terms.  Raises if they overflow."""
    check.no_overflow(name, terms, *latents)
    return terms
