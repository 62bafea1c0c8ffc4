"""Alignment, uniformity and redundancy."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from torch import Tensor

from reglet.diagnostics import (
    alignment,
    class_alignment,
    cross_correlation,
    redundancy_to_alignment,
    uniformity,
)
from reglet.losses import BarlowTwinsLoss


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(z: Tensor) -> np.ndarray:
    return (z / z.norm(dim=-1, keepdim=True)).numpy()


def test_alignment_of_views_at_a_known_angle() -> None:
    a = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    b = torch.tensor([[0.5, math.sqrt(0.75)], [0.0, 5.0]])  # 60 degrees: distance 1; and the same direction
    assert alignment(torch.stack([a, b])) == pytest.approx(0.5)
    assert alignment(torch.stack([a, a, -a])) == pytest.approx(8 / 3)
    assert alignment(torch.stack([a, -a]), alpha=1.0) == pytest.approx(2)


def test_class_alignment_equals_all_pairs() -> None:
    z, labels = normal(30, 5), torch.arange(30) % 4 * 10
    squares = [
        ((x[i] - x[j]) ** 2).sum()
        for c in labels.unique()
        for x in [unit(z)[labels == c]]
        for i in range(len(x))
        for j in range(i)
    ]
    assert class_alignment(z, labels) == pytest.approx(np.mean(squares))
    with pytest.raises(ValueError, match="no class has two samples"):
        class_alignment(z, torch.arange(30))


@pytest.mark.parametrize("t", [2.0, 0.5])
def test_uniformity_equals_scipy(t: float) -> None:
    z = normal(50, 7) + 1
    theirs = np.log(np.exp(-t * pdist(unit(z), "sqeuclidean")).mean())
    assert uniformity(z, t=t) == pytest.approx(theirs, rel=1e-9)
    assert uniformity(z, t=t, chunk=7) == pytest.approx(theirs, rel=1e-9)
    assert uniformity(z.float(), t=t) == pytest.approx(theirs, rel=1e-5)


def test_uniformity_of_known_points() -> None:
    assert uniformity(torch.ones(5, 3)) == pytest.approx(0, abs=1e-6)
    cross = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert uniformity(cross) == pytest.approx(math.log((4 * math.exp(-4) + 2 * math.exp(-8)) / 6), rel=1e-5)


def test_cross_correlation_equals_numpy() -> None:
    a, b = normal(40, 5), normal(40, 5, seed=1)
    theirs = np.corrcoef(a.numpy().T, b.numpy().T)[:5, 5:]
    np.testing.assert_allclose(cross_correlation(a, b), theirs, atol=1e-12)
    a[:, 2] = 3.0
    assert torch.equal(cross_correlation(a, b)[2], torch.zeros(5, dtype=torch.float64))


def test_ratio_is_that_of_the_loss_terms() -> None:
    z = normal(2, 60, 6)
    terms = BarlowTwinsLoss(weight=0.02).terms(z)
    ratio = redundancy_to_alignment(cross_correlation(*z), weight=0.02)
    assert ratio == pytest.approx(float(terms["redundancy"] / terms["invariance"]), rel=1e-4)  # the loss has an eps
    assert redundancy_to_alignment(torch.eye(3) * 0.5) == 0
    assert redundancy_to_alignment(torch.tensor([[1.0, 0.5], [0.0, 1.0]])) == math.inf
