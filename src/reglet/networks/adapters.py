"""Few-shot adapters over the features of a frozen encoder.

Tip-Adapter: a cache of the shots beside a classifier, nothing trained.  Zhang et al., ECCV 2022, arXiv:2111.03930.

    logits = alpha A L + s f W^T,        A = exp(-beta (1 - f F^T))

f are the test features, F the shots (the cache's keys), L their one-hot labels, W the class embeddings (CLIP's text
features, or the means of the shots).  f, F and W have unit rows.  alpha = 1 and beta = 5.5 are the paper's.  Its
equations have no s; we follow its code, which has s = 100, CLIP's temperature.

Tip-Adapter-F: Tip-Adapter whose keys are trained.  Zhang et al., ECCV 2022, arXiv:2111.03930, section 3.2.

The keys are the weight of a linear layer without bias, which starts as the shots.  Labels and class embeddings are not
trained.  As in the authors' code, trained keys are not normalized again.

Meta-Adapter: class embeddings refined by attention over the shots.  Cheng et al., NeurIPS 2023, arXiv:2311.03774.

    F^ = softmax((W_q w) (W_k F)^T / sqrt(d)) F,      w^ = w + g(w) * F^,      logits = s f w^^T

w is the embedding of a class (the query), F its shots (keys and values), g a gate.  No weight belongs to a class, so it
also works for classes that it was not trained on.  Here g is one linear layer with a sigmoid, a factor for every
feature.  w, F, f and w^ have unit rows; s = 100 as in CLIP.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn


def class_means(x: Float[Tensor, "m d"], labels: Int64[Tensor, " m"], *, classes: int) -> Float[Tensor, "c d"]:
    """The mean direction of each class: unit rows are averaged by class and normalized again.

    >>> import torch
    >>> class_means(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 1, 1]), classes=2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    sums = x.new_zeros(classes, x.shape[1]).index_add_(0, labels, F.normalize(x, dim=1))
    return F.normalize(sums, dim=1)


def cache_logits(affinity: Float[Tensor, "n m"], values: Float[Tensor, "m c"], *, beta: float) -> Float[Tensor, "n c"]:
    """exp(-beta (1 - f F^T)) L, of the affinity f F^T.

    >>> cache_logits(torch.ones(1, 3), F.one_hot(torch.tensor([0, 1, 1])).float(), beta=5.5)
    tensor([[1., 2.]])
    """
    return torch.exp(-beta * (1 - affinity)) @ values


class TipAdapter(nn.Module):
    """Features -> logits.  Nothing is trained.

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
        self._keep(F.normalize(shots, dim=1))
        self.register_buffer("values", F.one_hot(labels, len(classes)).to(shots.dtype))
        self.register_buffer("classes", F.normalize(classes, dim=1))

    def _keep(self, keys: Float[Tensor, "m d"]) -> None:
        self.register_buffer("keys", keys)

    def _affinity(self, f: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
        return f @ self.keys.T

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        f = F.normalize(x, dim=1)
        cached = cache_logits(self._affinity(f), self.values, beta=self.beta)
        return self.alpha * cached + self.scale * f @ self.classes.T


class TipAdapterF(TipAdapter):
    """Features -> logits; before training those of `TipAdapter`.

    >>> shots, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> TipAdapterF(shots, labels, torch.eye(4)[[0, 2]])(shots).argmax(1).tolist()
    [0, 0, 1, 1]
    """

    sim_blocks = ("cache",)

    def _keep(self, keys: Float[Tensor, "m d"]) -> None:
        self.cache = nn.Linear(keys.shape[1], len(keys), bias=False, dtype=keys.dtype)
        with torch.no_grad():
            self.cache.weight.copy_(keys)

    def _affinity(self, f: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
        out: Tensor = self.cache(f)
        return out


class GatedAttention(nn.Module):
    """Embeddings of classes, and the shots of each -> embeddings refined, of unit length.

    heads: the features in so many parts, each with weights of its own over the shots.

    >>> GatedAttention(8, heads=2)(torch.randn(5, 8), torch.randn(5, 4, 8)).shape
    torch.Size([5, 8])
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
