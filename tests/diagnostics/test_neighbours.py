import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from reglet.diagnostics import nearest, neighbours_across_domains, tsne


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("chunk", [1024, 7])
def test_nearest_equals_scikit_learn(chunk: int) -> None:
    query, keys = normal(20, 6), normal(50, 6, seed=1)
    theirs = NearestNeighbors(n_neighbors=5, metric="cosine").fit(keys).kneighbors(query, return_distance=False)
    assert nearest(query, keys, k=5, chunk=chunk).tolist() == theirs.tolist()
    theirs = NearestNeighbors(n_neighbors=6, metric="cosine").fit(keys).kneighbors(keys, return_distance=False)[:, 1:]
    assert nearest(keys, keys, k=5, own=True, chunk=chunk).tolist() == theirs.tolist()


def test_content_and_origin_are_told_apart() -> None:
    labels, domain = torch.arange(120) % 3, torch.arange(120) // 60
    content = torch.eye(3)[labels] * 10 + 0.1 * normal(120, 3)
    origin = torch.eye(2)[domain] * 10 + 0.1 * normal(120, 2, seed=1)
    by_class = neighbours_across_domains(content, labels, domain, k=39)  # all 39 others of the class
    assert by_class.same_class == 1
    assert by_class.other_domain == pytest.approx(20 / 39)
    assert by_class.same_class_elsewhere == 1
    by_domain = neighbours_across_domains(origin, labels, domain, k=59)
    assert by_domain.other_domain == 0
    assert by_domain.same_class == pytest.approx(19 / 59)
    assert math.isnan(by_domain.same_class_elsewhere)
    assert by_domain.neighbours.shape == (120, 59)
    with pytest.raises(ValueError, match="between 1 and the 119 possible neighbours, got 120"):
        neighbours_across_domains(content, labels, domain, k=120)


def test_shares_by_hand() -> None:
    angle = torch.deg2rad(torch.tensor([0.0, 10.0, 25.0, 200.0]))
    z = torch.stack([angle.cos(), angle.sin()], 1)
    found = neighbours_across_domains(z, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 0]), k=2)
    assert found.neighbours.tolist() == [[1, 2], [0, 2], [1, 0], [0, 1]]
    assert found.same_class == pytest.approx(2 / 8)
    assert found.other_domain == pytest.approx(5 / 8)
    assert found.same_class_elsewhere == pytest.approx(2 / 5)


def test_tsne_keeps_clusters_apart_and_repeats() -> None:
    labels = torch.arange(90) % 3
    z = torch.eye(10)[labels] * 20 + normal(90, 10)
    y = tsne(z, perplexity=10.0)
    assert y.shape == (90, 2)
    assert torch.equal(y, tsne(z, perplexity=10.0))
    assert np.mean(labels.numpy()[nearest_by_distance(y)] == labels.numpy()) == 1
    with pytest.raises(ValueError, match="below n = 90, got 90"):
        tsne(z, perplexity=90.0)


def nearest_by_distance(y: Tensor) -> np.ndarray:
    distance = torch.cdist(y, y)
    distance.fill_diagonal_(torch.inf)
    return distance.argmin(1).numpy()
