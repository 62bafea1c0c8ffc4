"""Tip-Adapter-F: Tip-Adapter whose keys are trained.  Zhang et al., ECCV 2022, arXiv:2111.03930, section 3.2.

The keys are the weight of a linear layer without bias that begins as the shots; labels and class embeddings stay.
Trained keys are not made unit again, as in the authors' code.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from reglet.networks.adapters.tip_adapter import cache_logits


class TipAdapterF(nn.Module):
    """Features -> logits; before training those of `TipAdapter`.

    >>> shots, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> TipAdapterF(shots, labels, torch.eye(4)[[0, 2]])(shots).argmax(1).tolist()
    [0, 0, 1, 1]
    """

    sim_blocks = ("cache",)
    values: Tensor
    classes: Tensor

    def __init__(
        self,
        shots: Float[Tensor, "m d"],
        labels: Int64[Tensor, " m"],
        classes: Float[Tensor, "c d"],
        *,
        alpha: float = 1.0,
        beta: float = 5.5,
        scale: float = 100.0,
    ) -> None:
        super().__init__()
        self.alpha, self.beta, self.scale = alpha, beta, scale
        self.cache = nn.Linear(shots.shape[1], len(shots), bias=False, dtype=shots.dtype)
        with torch.no_grad():
            self.cache.weight.copy_(F.normalize(shots, dim=1))
        self.register_buffer("values", F.one_hot(labels, len(classes)).to(shots.dtype))
        self.register_buffer("classes", F.normalize(classes, dim=1))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        f = F.normalize(x, dim=1)
        return self.alpha * cache_logits(self.cache(f), self.values, beta=self.beta) + self.scale * f @ self.classes.T
