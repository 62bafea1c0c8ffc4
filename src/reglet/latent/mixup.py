"""Mixup.  Zhang et al., ICLR 2018, arXiv:1710.09412."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reglet import check
from reglet.latent.draws import beta, moved, require_batch


class Mix(NamedTuple):
    """The draw of Mixup.

    >>> draw = Mix(0.75, torch.tensor([1, 0]))
    >>> Mixup().apply(torch.tensor([[0.0], [1.0]]), draw).flatten().tolist()
    [0.25, 0.75]
    """

    lam: float
    partner: Int64[Tensor, "n"]  # a permutation of the batch


@dataclass(frozen=True)
class Mixup:
    """x_i <- lam x_i + (1 - lam) x_pi(i), and the same for labels.  lam ~ Beta(alpha, alpha), one for the batch.

    The paper writes the loss as lam CE(f(x), y_i) + (1 - lam) CE(f(x), y_pi(i)).  Cross-entropy is linear in its
    target, so this equals the cross-entropy with the soft labels of `mix`.  In the paper, alpha is 0.1 to 0.4 on
    ImageNet and 1 on CIFAR.  On hidden states the same operator is manifold mixup.

    >>> mixup = Mixup()
    >>> p = mixup.draw(4, torch.Generator().manual_seed(0))
    >>> x, y = mixup.mix(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]), p, num_classes=3)
    >>> y.shape
    torch.Size([4, 3])
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check.positive(alpha=self.alpha)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Mix:
        check.whole(1, n=n)
        return Mix(
            lam=float(beta(self.alpha, 1, generator)), partner=torch.randperm(n, generator=generator, device="cpu")
        )

    def apply(self, x: Float[Tensor, "n ..."], p: Mix) -> Float[Tensor, "n ..."]:
        return interpolate(x, p.partner, lam=p.lam)

    def mix(
        self, x: Float[Tensor, "n ..."], y: Tensor, p: Mix, *, num_classes: int
    ) -> tuple[Float[Tensor, "n ..."], Float[Tensor, "n k"]]:
        """Samples and their labels, mixed alike.  `y` holds class indices (n,) or soft labels (n, num_classes)."""
        p = p._replace(partner=moved(p.partner, x))
        return self.apply(x, p), interpolate(soft_labels(y, num_classes=num_classes), p.partner, lam=p.lam)


def interpolate(x: Float[Tensor, "n ..."], partner: Int64[Tensor, "m"], *, lam: float) -> Float[Tensor, "n ..."]:
    """lam x_i + (1 - lam) x_partner(i)"""
    require_batch(partner, x, None, -1)
    return torch.lerp(x[moved(partner, x)], x, lam)


def soft_labels(y: Tensor, *, num_classes: int) -> Float[Tensor, "n k"]:
    """Class indices become one-hot rows; rows of probabilities stay as they are."""
    check.whole(1, num_classes=num_classes)
    check.labels(y, n=len(y) if isinstance(y, Tensor) and y.ndim else 0, classes=num_classes)
    if y.is_floating_point():
        return y
    # By scatter, which also refuses a class out of range on devices where labels are not checked.
    return torch.zeros(len(y), num_classes, device=y.device).scatter_(1, y.long()[:, None], 1.0)
