"""Meta-Adapter: class embeddings refined by attention over the shots.  Cheng et al., NeurIPS 2023, arXiv:2311.03774.

    F^ = softmax((W_q w) (W_k F)^T / sqrt(d)) F,      w^ = w + g(w) * F^,      logits = s f w^^T

w is the embedding of a class (the query), F its shots (keys, and values as they are), g a gate.  Nothing in it belongs
to a class, so that it serves classes it was not trained on.  g is one linear layer with a sigmoid here, a factor for
every feature; w, F, f and w^ have unit rows, s = 100 as in CLIP.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class GatedAttention(nn.Module):
    """Embeddings of classes, and the shots of each -> embeddings refined, of unit length.

    heads: the features in so many parts, each with weights of its own over the shots.
    """

    def __init__(self, dim: int, *, heads: int = 1) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"{dim} features cannot be cut into {heads} heads")
        self.heads = heads
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.gate = nn.Linear(dim, dim)

    def forward(self, w: Float[Tensor, "c d"], shots: Float[Tensor, "c k d"]) -> Float[Tensor, "c d"]:
        q = self.query(w).unflatten(1, (self.heads, -1))
        k, v = (y.unflatten(2, (self.heads, -1)) for y in (self.key(shots), shots))
        a = torch.einsum("chd,ckhd->chk", q, k).div(math.sqrt(q.shape[2])).softmax(2)
        attended = torch.einsum("chk,ckhd->chd", a, v).flatten(1)
        return F.normalize(w + torch.sigmoid(self.gate(w)) * attended, dim=1)


class MetaAdapter(nn.Module):
    """Features, class embeddings and shots of each class -> logits.

    >>> shots = torch.randn(5, 3, 16)  # three of each of five classes
    >>> MetaAdapter(16)(torch.randn(2, 16), shots.mean(1), shots).shape
    torch.Size([2, 5])
    """

    sim_blocks = ("refine",)

    def __init__(self, dim: int, *, heads: int = 1, scale: float = 100.0) -> None:
        super().__init__()
        self.scale = scale
        self.refine = GatedAttention(dim, heads=heads)

    def forward(
        self, x: Float[Tensor, "n d"], classes: Float[Tensor, "c d"], shots: Float[Tensor, "c k d"]
    ) -> Float[Tensor, "n c"]:
        refined: Tensor = self.refine(F.normalize(classes, dim=1), F.normalize(shots, dim=2))
        return self.scale * F.normalize(x, dim=1) @ refined.T
