"""Gaussian noise on latents: the control of every cleverer augmentation."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.latent.classify import Criterion, Head, cross_entropy, log_probabilities, require_latents, targets_for
from reglet.types import Scalar, Terms, total


@dataclass(frozen=True)
class GaussianNoise:
    """z + e with e ~ N(0, sigma^2) in every feature.  LatentDR's table 2 has sigma = 1."""

    dim: int
    sigma: float = 1.0

    def __post_init__(self) -> None:
        if self.dim < 1 or not self.sigma >= 0:
            raise ValueError(f"expected dim >= 1 and sigma >= 0, got {self.dim} and {self.sigma}")

    def draw(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n d"]:
        """Standard normal noise."""
        return torch.randn(n, self.dim, generator=generator)

    def apply(self, x: Float[Tensor, "n d"], p: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return x + self.sigma * p.to(x)

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Draw from torch's own generator, and apply."""
        return self.apply(x, self.draw(len(x)))


class NoisyLatents(nn.Module):
    """CE(g(z + e), y) with Gaussian noise e.

    >>> loss = NoisyLatents(8, sigma=0.1)
    >>> loss(torch.randn(4, 8), torch.tensor([0, 1, 2, 0]), nn.Linear(8, 3)).shape
    torch.Size([])
    """

    def __init__(self, dim: int, *, sigma: float = 1.0, criterion: Criterion | None = None) -> None:
        super().__init__()
        self.noise, self.criterion = GaussianNoise(dim, sigma), criterion

    def terms(self, z: Tensor, y: Tensor, head: Head) -> Terms:
        require_latents("NoisyLatents", z, dim=self.noise.dim)
        (log_p,) = log_probabilities(head, self.noise(z), criterion=self.criterion)
        return {"noisy": cross_entropy(log_p, targets_for(y, log_p))}

    def forward(self, z: Tensor, y: Tensor, head: Head) -> Scalar:
        return total(self.terms(z, y, head))
