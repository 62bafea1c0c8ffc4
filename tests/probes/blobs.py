"""Features for the tests of probes: classes around centres, correlated as a network's features are."""

import torch
from torch import Tensor


def blobs(n: int, d: int, *, classes: int = 4, spread: float = 1.5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, d, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(n) % classes
    return centres[labels] + spread * torch.randn(n, d, generator=generator), labels


def correlated(n: int, d: int, *, classes: int = 4, spread: float = 1.5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Blobs under a linear map that gives one direction most of the variance."""
    x, labels = blobs(n, d, classes=classes, spread=spread, seed=seed)
    mixing = torch.randn(d, d, generator=torch.Generator().manual_seed(98)) / d**0.5
    return x @ (mixing + 1.5 * torch.ones(d, d) / d**0.5) + 3, labels
