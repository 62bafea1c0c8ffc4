"""Gaussian noise on latents, the control for other augmentations."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.latent.classify import (
    Criterion,
    Head,
    checked_criterion,
    cross_entropy,
    finished,
    log_probabilities,
    targets_for,
)
from reglet.latent.draws import moved, require_batch
from reglet.types import Scalar, Terms, total


@dataclass(frozen=True)
class GaussianNoise:
    """z + e with e ~ N(0, sigma^2) in every feature.  LatentDR's table 2 has sigma = 1.

    >>> noise = GaussianNoise(dim=4, sigma=0.1)
    >>> noise(torch.zeros(8, 4)).shape
    torch.Size([8, 4])
    """

    dim: int
    sigma: float = 1.0

    def __post_init__(self) -> None:
        check.whole(1, dim=self.dim)
        check.not_negative(sigma=self.sigma)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n d"]:
        """Standard normal noise."""
        check.whole(1, n=n)
        return torch.randn(n, self.dim, generator=generator, device="cpu")

    def apply(self, x: Float[Tensor, "n d"], p: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        require_batch(p, x, None, self.dim)
        noisy = x + self.sigma * moved(p.to(x.dtype), x)
        check.no_overflow("GaussianNoise", {"z + e": noisy}, x)
        return noisy

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Draws from torch's own generator and applies the draw."""
        check.tensor("x", x, None, self.dim)
        return self.apply(x, self.draw(len(x)))


class NoisyLatents(nn.Module):
    """CE(g(z + e), y) with Gaussian noise e.

    >>> loss = NoisyLatents(8, sigma=0.1)
    >>> loss(torch.randn(4, 8), torch.tensor([0, 1, 2, 0]), nn.Linear(8, 3)).shape
    torch.Size([])
    """

    def __init__(self, dim: int, *, sigma: float = 1.0, criterion: Criterion | None = None) -> None:
        super().__init__()
        self.noise, self.criterion = GaussianNoise(dim, sigma), checked_criterion(criterion)

    def terms(self, z: Tensor, y: Tensor, head: Head) -> Terms:
        check.tensor("the latents of NoisyLatents", z, None, self.noise.dim)
        (log_p,) = log_probabilities(head, self.noise(z), criterion=self.criterion)
        return finished("NoisyLatents", {"noisy": cross_entropy(log_p, targets_for(y, log_p))}, z)

    def forward(self, z: Tensor, y: Tensor, head: Head) -> Scalar:
        return total(self.terms(z, y, head))
