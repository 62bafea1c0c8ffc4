"""Cross-entropy on labels."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.protocol import dim_of
from reglet.method import Batch, Method
from reglet.methods.crops import by_size
from reglet.precision import at_least_float32, no_autocast
from reglet.types import LatentLoss, Terms


class Supervised(Method):
    """A linear classifier on the backbone.  Every view of a sample has the sample's label.

    label_smoothing: eps of the target (1 - eps) onehot + eps / classes.
    latent: a loss on latents, labels and the classifier, such as LatentDR.  It replaces the cross-entropy, which is one
        of its terms.

    >>> from reglet.backbones import ConvNet
    >>> method = Supervised(ConvNet(widths=(8, 16), depth=1), classes=3)
    >>> list(method(Batch([torch.rand(4, 3, 16, 16)], labels=torch.arange(4) % 3)))
    ['cross_entropy']
    >>> method.logits(torch.rand(2, 3, 16, 16)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, backbone: nn.Module, *, classes: int, label_smoothing: float = 0.0, latent: LatentLoss | None = None
    ) -> None:
        super().__init__()
        if classes < 2 or not 0 <= label_smoothing < 1:
            raise ValueError(
                f"expected classes >= 2 and label_smoothing in [0, 1), got {classes} and {label_smoothing}"
            )
        if latent is not None and label_smoothing:
            raise ValueError(f"a latent loss has its own criterion, so label_smoothing={label_smoothing} would be lost")
        self.backbone, self.label_smoothing, self.latent = backbone, label_smoothing, latent
        self.head = nn.Linear(dim_of(backbone), classes)

    def forward(self, batch: Batch) -> Terms:
        if batch.labels is None:
            raise ValueError("Supervised needs labels, and this batch has none")
        z, y = torch.cat(by_size(self.encode, batch.views)), torch.cat([batch.labels] * len(batch.views))
        if self.latent is not None:
            return self.latent.terms(z, y, self.head)
        logits = self.head(z)
        with no_autocast(logits):
            return {"cross_entropy": F.cross_entropy(at_least_float32(logits), y, label_smoothing=self.label_smoothing)}

    def logits(self, x: Float[Tensor, "n c ..."]) -> Float[Tensor, "n k"]:
        y: Tensor = self.head(self.backbone(x))
        return y
