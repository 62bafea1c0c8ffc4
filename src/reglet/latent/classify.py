"""What latent losses share: one call of the classifier for all sets of latents, and cross-entropy with soft labels."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.latent.mixup import soft_labels
from reglet.types import Scalar

Head = Callable[[Tensor], Tensor]


@runtime_checkable
class Criterion(Protocol):
    """What a loss does to logits before the softmax: balanced softmax and logit adjustment, in `reglet.tails`."""

    def adjust(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]: ...


def log_probabilities(
    head: Head, *latents: Float[Tensor, "n d"], criterion: Criterion | None = None
) -> list[Float[Tensor, "n k"]]:
    """log softmax(head(z)) for each set of latents, by one call of the head on all of them.

    The head runs as the caller's autocast says, the softmax in float32.
    """
    z = torch.cat(latents)
    if isinstance(head, nn.Linear) and head.in_features != z.shape[1]:
        raise ValueError(f"the latents have width {z.shape[1]}, and the head takes {head.in_features}")
    logits = head(z)
    if logits.ndim != 2 or len(logits) != len(z):
        raise ValueError(f"a head makes logits (n, classes) of latents {tuple(z.shape)}, got {tuple(logits.shape)}")
    with torch.autocast(logits.device.type, enabled=False):
        logits = widened(logits)
        logits = logits if criterion is None else criterion.adjust(logits)
        return list(logits.log_softmax(1).split([len(each) for each in latents]))


def targets_for(y: Tensor, log_p: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """The labels as rows of probabilities, checked against what the head put out."""
    if len(y) != len(log_p):
        raise ValueError(f"there are {len(log_p)} latents and {len(y)} labels")
    return soft_labels(y, num_classes=log_p.shape[1]).to(log_p.dtype)


def cross_entropy(log_p: Float[Tensor, "n k"], targets: Float[Tensor, "n k"]) -> Scalar:
    """- 1/n sum_i <y_i, log p_i>"""
    return -(targets * log_p).sum(1).mean()


def entropy(targets: Float[Tensor, "n k"]) -> Scalar:
    """H(ybar) of the mean label, below which no cross-entropy with ybar can fall."""
    return torch.special.entr(targets.mean(0)).sum()


def widened(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32, anything else as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def fit_to(weights: nn.Module, z: Tensor) -> Tensor:
    """Half-precision latents, in the precision of a module's own weights."""
    weight = next(weights.parameters(), None)
    return widened(z) if weight is None or z.dtype == widened(z).dtype else z.to(weight.dtype)


def require_latents(name: str, z: Tensor, *, dim: int) -> None:
    if z.ndim != 2 or not z.is_floating_point() or z.shape[1] != dim or len(z) == 0:
        raise ValueError(f"{name} was built for latents (n, {dim}), got {z.dtype} of shape {tuple(z.shape)}")
