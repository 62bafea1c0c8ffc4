"""A classifier trained on several domains."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.protocol import dim_of
from reglet.method import Batch, Method
from reglet.methods.crops import by_size
from reglet.methods.domains.annealed import Annealed
from reglet.types import Scalar, Terms


@runtime_checkable
class DomainLoss(Protocol):
    """A loss on the latents and labels of each domain, and the classifier: ERM, IRM, ..., or `OnUnion` of a latent
    loss.

    >>> from reglet.methods.domains import ERM
    >>> list(ERM().terms([torch.zeros(4, 2)] * 3, [torch.arange(4) % 2] * 3, nn.Linear(2, 2)))
    ['risk']
    """

    def __call__(self, z: list[Tensor], y: list[Tensor], head: Callable[[Tensor], Tensor]) -> Scalar: ...

    def terms(self, z: list[Tensor], y: list[Tensor], head: Callable[[Tensor], Tensor]) -> Terms: ...

    def after_step(self, step: int) -> None: ...


class Domains(Method):
    """A linear classifier on the backbone, with a loss on the parts of a batch by domain, in the order of their ids.

        Domains(backbone, IRM(), classes=7)
        Domains(backbone, OnUnion(LatentDR(dim=512)), classes=7)

    Every view of a sample has the sample's label and domain.  Without a `domain`, the batch is one domain.
    interleaved: the number of domains, if they take turns in a batch, as `Batches` draws them.  Then `domain` need not
        be read, which would wait for a GPU.

    >>> from reglet.backbones import ConvNet
    >>> from reglet.methods.domains import IRM
    >>> method = Domains(ConvNet(widths=(8, 16), depth=1), IRM(), classes=3)
    >>> domain = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    >>> list(method(Batch([torch.rand(8, 3, 16, 16)], labels=torch.arange(8) % 3, domain=domain)))
    ['risk', 'penalty']
    """

    def __init__(self, backbone: nn.Module, loss: DomainLoss, *, classes: int, interleaved: int = 0) -> None:
        super().__init__()
        if classes < 2:
            raise ValueError(f"expected classes >= 2, got {classes}")
        self.backbone, self.loss, self.interleaved = backbone, loss, interleaved
        self.head = nn.Linear(dim_of(backbone), classes)

    def forward(self, batch: Batch) -> Terms:
        if batch.labels is None:
            raise ValueError("Domains needs labels, and this batch has none")
        z = torch.cat(by_size(self.backbone, batch.views))
        y = torch.cat([batch.labels] * len(batch.views))  # classes, or rows of probabilities
        if (k := self.interleaved) and len(batch) % k == 0:
            return self.loss.terms([z[e::k] for e in range(k)], [y[e::k] for e in range(k)], self.head)
        if batch.domain is None:
            return self.loss.terms([z], [y], self.head)
        domain = batch.domain.repeat(len(batch.views))
        parts = [domain == d for d in batch.domain.unique()]
        return self.loss.terms([z[part] for part in parts], [y[part] for part in parts], self.head)

    def logits(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k"]:
        y: Tensor = self.head(self.backbone(x))
        return y

    def after_step(self, step: int, steps: int) -> None:
        self.loss.after_step(step)

    def forgets(self, step: int) -> bool:
        """DomainBed makes a new Adam when a penalty gets its weight, because the moments belong to another loss."""
        return isinstance(self.loss, Annealed) and step == self.loss.anneal
