"""Mixup.  Zhang et al., ICLR 2018, arXiv:1710.09412."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor


class Mix(NamedTuple):
    """What Mixup drew."""

    lam: float
    partner: Int64[Tensor, "n"]  # a permutation of the batch


@dataclass(frozen=True)
class Mixup:
    """lam ~ Beta(alpha, alpha), one for the batch;  x_i <- lam x_i + (1 - lam) x_pi(i),  labels alike.

    The paper writes the loss as lam CE(f(x), y_i) + (1 - lam) CE(f(x), y_pi(i)); cross-entropy is linear in its
    target, so this equals the cross-entropy with the soft labels of `mix`.  alpha is 0.1 to 0.4 on ImageNet and 1 on
    CIFAR in the paper.  On hidden states the same operator is manifold mixup.

    >>> mixup = Mixup()
    >>> p = mixup.draw(4, torch.Generator().manual_seed(0))
    >>> x, y = mixup.mix(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]), p, num_classes=3)
    >>> y.shape
    torch.Size([4, 3])
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ValueError(f"alpha of Beta(alpha, alpha) must be positive, got {self.alpha}")

    def draw(self, n: int, generator: torch.Generator | None = None) -> Mix:
        return Mix(lam=beta(self.alpha, generator), partner=torch.randperm(n, generator=generator))

    def apply(self, x: Float[Tensor, "n ..."], p: Mix) -> Float[Tensor, "n ..."]:
        return interpolate(x, p.partner, lam=p.lam)

    def mix(
        self, x: Float[Tensor, "n ..."], y: Tensor, p: Mix, *, num_classes: int
    ) -> tuple[Float[Tensor, "n ..."], Float[Tensor, "n k"]]:
        """Samples and their labels, mixed alike.  `y` holds class indices (n,) or is soft already (n, num_classes)."""
        return self.apply(x, p), interpolate(soft_labels(y, num_classes=num_classes), p.partner, lam=p.lam)


def interpolate(x: Float[Tensor, "n ..."], partner: Int64[Tensor, "m"], *, lam: float) -> Float[Tensor, "n ..."]:
    """lam x_i + (1 - lam) x_partner(i)"""
    if len(partner) != len(x):
        raise ValueError(f"drawn for a batch of {len(partner)}, got one of {len(x)}")
    return torch.lerp(x[partner], x, lam)


def soft_labels(y: Tensor, *, num_classes: int) -> Float[Tensor, "n k"]:
    """Class indices as one-hot rows; rows of probabilities as they are."""
    if y.is_floating_point():
        if y.ndim != 2 or y.shape[1] != num_classes:
            raise ValueError(f"soft labels have shape (n, {num_classes}), got {tuple(y.shape)}")
        return y
    if y.ndim != 1 or (y.numel() and (int(y.min()) < 0 or int(y.max()) >= num_classes)):
        found = f"{int(y.min())}..{int(y.max())}" if y.numel() else "none"
        raise ValueError(
            f"class labels are (n,) integers below {num_classes}, got shape {tuple(y.shape)} and values {found}"
        )
    return torch.nn.functional.one_hot(y.long(), num_classes).to(torch.get_default_dtype())


def beta(alpha: float, generator: torch.Generator | None = None) -> float:
    """A draw from Beta(alpha, alpha).  numpy makes it, because torch's sampler takes no generator."""
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    return float(np.random.default_rng(seed).beta(alpha, alpha))
