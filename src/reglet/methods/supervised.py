"""Cross-entropy on labels."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.protocol import dim_of
from reglet.method import Batch, Method
from reglet.methods.crops import by_size
from reglet.methods.precision import full
from reglet.types import Terms


class Supervised(Method):
    """A linear classifier on the backbone; every view of a sample has the sample's label.

    label_smoothing: eps of the target (1 - eps) onehot + eps / classes.
    """

    def __init__(self, backbone: nn.Module, *, classes: int, label_smoothing: float = 0.0) -> None:
        super().__init__()
        if classes < 2 or not 0 <= label_smoothing < 1:
            raise ValueError(
                f"expected classes >= 2 and label_smoothing in [0, 1), got {classes} and {label_smoothing}"
            )
        self.backbone, self.label_smoothing = backbone, label_smoothing
        self.head = nn.Linear(dim_of(backbone), classes)

    def forward(self, batch: Batch) -> Terms:
        if batch.labels is None:
            raise ValueError("Supervised needs labels, and this batch has none")
        logits = torch.cat(by_size(self.logits, batch.views))
        with torch.autocast(logits.device.type, enabled=False):
            y = batch.labels.repeat(len(batch.views))
            return {"cross_entropy": F.cross_entropy(full(logits), y, label_smoothing=self.label_smoothing)}

    def logits(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k"]:
        y: Tensor = self.head(self.backbone(x))
        return y

    def encode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        y: Tensor = self.backbone(x)
        return y
