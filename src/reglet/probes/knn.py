"""Weighted k-nearest-neighbour classification of frozen features.

    p(y | x)  ~  sum over the k nearest x_i of  exp(cos(x, x_i) / T) [y_i = y]

with k = 20 and T = 0.07 (Wu et al., CVPR 2018, section 3.4, by way of DINO).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet import check
from reglet.precision import at_least_float32, unit_length
from reglet.probes.check import check_features
from reglet.probes.metrics import accuracy


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
    """The share of each class in the neighbours' weight.  chunk: test features that are compared at a time.

    >>> knn_votes(torch.eye(2), torch.tensor([0, 1]), torch.tensor([[1.0, 0.0]]), k=1).tolist()
    [[1.0, 0.0]]
    """
    check_features(train, labels, test)
    check.whole(1, k=k, chunk=chunk)
    check.positive(temperature=temperature)
    if not k <= len(train):
        raise ValueError(f"k must be between 1 and the {len(train)} training features, got {k}")
    keys = unit_length(at_least_float32(train)).float()
    classes = int(labels.max()) + 1
    rows = []
    for query in unit_length(at_least_float32(test)).float().split(chunk):
        similarity, nearest = (query @ keys.T).topk(k, dim=1)
        weight = (similarity / temperature).softmax(1)  # a common factor does not change shares
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
    """Accuracy on the test features.

    >>> x, y = torch.eye(2).repeat(30, 1), torch.arange(60) % 2
    >>> knn_probe(x, y, x, y)
    1.0
    """
    votes = knn_votes(train, train_labels, test, k=k, temperature=temperature)
    return accuracy(votes, test_labels)
