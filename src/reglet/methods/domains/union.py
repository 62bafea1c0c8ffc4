"""A latent loss on the samples of all domains together."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reglet.latent.classify import Head
from reglet.methods.domains.base import require_domains
from reglet.types import LatentLoss, Scalar, Terms, total


class OnUnion(nn.Module):
    """Makes a domain loss of a latent loss, such as LatentDR or BatchFormer, which mixes across domains.

    >>> from reglet.latent import LatentDR
    >>> loss = OnUnion(LatentDR(dim=8))
    >>> z, y = [torch.randn(4, 8), torch.randn(3, 8)], [torch.tensor([0, 1, 2, 0]), torch.tensor([2, 2, 1])]
    >>> sorted(loss.terms(z, y, nn.Linear(8, 3)))
    ['degraded', 'original', 'restored']
    """

    def __init__(self, loss: LatentLoss) -> None:
        super().__init__()
        self.loss = loss

    def terms(self, z: Sequence[Tensor], y: Sequence[Tensor], head: Head) -> Terms:
        require_domains("OnUnion", z, domains=1, samples=1)
        shapes = [tuple(each.shape) for each in y]
        if len(y) != len(z) or any(shape != (len(each), *shapes[0][1:]) for shape, each in zip(shapes, z, strict=True)):
            raise ValueError(f"latents of {[len(each) for each in z]} samples by domain, labels of shapes {shapes}")
        return self.loss.terms(torch.cat(list(z)), torch.cat(list(y)), head)

    def forward(self, z: Sequence[Tensor], y: Sequence[Tensor], head: Head) -> Scalar:
        return total(self.terms(z, y, head))

    def after_step(self, step: int) -> None:
        """Latent losses do not change in time."""
