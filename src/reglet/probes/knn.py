"""Weighted k-nearest-neighbour classification of frozen features.

    p(y | x)  ~  sum over the k nearest x_i of  exp(cos(x, x_i) / T) [y_i = y]

with k = 20 and T = 0.07 (Wu et al., CVPR 2018, section 3.4, by way of DINO).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from reglet.precision import in_float64
from reglet.probes.check import check_features


@torch.no_grad()
def knn_votes(
    train: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    *,
    k: int = 20,
    temperature: float = 0.07,
    chunk: int = 1024,
) -> Float[Tensor, "n classes"]:
    """Each class's share of the neighbours' weight.  `chunk` test features meet all of `train` at a time."""
    check_features(train, labels, test)
    if not 1 <= k <= len(train):
        raise ValueError(f"k must be between 1 and the {len(train)} training features, got {k}")
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    keys = F.normalize(train.float(), dim=1)
    classes = int(labels.max()) + 1
    rows = []
    for query in F.normalize(test.float(), dim=1).split(chunk):
        similarity, nearest = (query @ keys.T).topk(k, dim=1)
        weight = (similarity / temperature).softmax(1)  # the weights up to a factor, which no share depends on
        rows.append(weight.new_zeros(len(query), classes).scatter_add_(1, labels[nearest].long(), weight))
    return torch.cat(rows)


def knn_probe(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    test_labels: Int[Tensor, " n"],
    *,
    k: int = 20,
    temperature: float = 0.07,
) -> float:
    """Accuracy on the test features."""
    votes = knn_votes(train, train_labels, test, k=k, temperature=temperature)
    return float(in_float64(votes.argmax(1) == test_labels).mean())
