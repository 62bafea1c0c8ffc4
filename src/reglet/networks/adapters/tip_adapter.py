"""Tip-Adapter: a cache of the shots beside a classifier, nothing trained.  Zhang et al., ECCV 2022, arXiv:2111.03930.

    logits = alpha A L + s f W^T,        A = exp(-beta (1 - f F^T))

f are the test features, F the shots (the cache's keys), L their labels one-hot, W the class embeddings (CLIP's text
features, or the means of the shots); all of f, F and W have unit rows.  alpha = 1 and beta = 5.5 are the paper's; its
equations have no s, its code has s = 100, CLIP's temperature, which we follow.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn


def cache_logits(affinity: Float[Tensor, "n m"], values: Float[Tensor, "m c"], *, beta: float) -> Float[Tensor, "n c"]:
    """exp(-beta (1 - f F^T)) L, of the affinity f F^T.

    >>> cache_logits(torch.ones(1, 3), F.one_hot(torch.tensor([0, 1, 1])).float(), beta=5.5)
    tensor([[1., 2.]])
    """
    return torch.exp(-beta * (1 - affinity)) @ values


class TipAdapter(nn.Module):
    """Features -> logits.  There is nothing in it to train.

    >>> shots, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> TipAdapter(shots, labels, torch.eye(4)[[0, 2]])(shots).argmax(1).tolist()
    [0, 0, 1, 1]
    """

    keys: Tensor
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
        self.register_buffer("keys", F.normalize(shots, dim=1))
        self.register_buffer("values", F.one_hot(labels, len(classes)).to(shots.dtype))
        self.register_buffer("classes", F.normalize(classes, dim=1))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        f = F.normalize(x, dim=1)
        return self.alpha * cache_logits(f @ self.keys.T, self.values, beta=self.beta) + self.scale * f @ self.classes.T
