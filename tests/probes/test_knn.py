import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from reglet.probes import knn_probe, knn_votes


def data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (n,), generator=generator)
    centres = torch.randn(5, 12, generator=torch.Generator().manual_seed(9))
    return centres[labels] + torch.randn(n, 12, generator=generator), labels


def brute_force(train: Tensor, labels: Tensor, test: Tensor, k: int, temperature: float) -> list[list[float]]:
    votes = []
    for x in test.double():
        cosines = [float(x @ t / (x.norm() * t.norm())) for t in train.double()]
        nearest = sorted(range(len(train)), key=lambda i: -cosines[i])[:k]
        weights = {i: math.exp(cosines[i] / temperature) for i in nearest}
        total = sum(weights.values())
        votes.append([sum(w for i, w in weights.items() if labels[i] == c) / total for c in range(5)])
    return votes


@pytest.mark.parametrize(("k", "temperature"), [(20, 0.07), (1, 0.07), (7, 1.0)])
def test_equals_brute_force(k: int, temperature: float) -> None:
    (train, labels), (test, _) = data(80, 0), data(15, 1)
    votes = knn_votes(train, labels, test, k=k, temperature=temperature)
    expected = torch.tensor(brute_force(train, labels, test, k, temperature))
    torch.testing.assert_close(votes, expected, rtol=0, atol=2e-5)  # float32 cosines over a temperature of 0.07


def test_equals_scikit_learn() -> None:
    (train, labels), (test, test_labels) = data(300, 0), data(200, 1)
    theirs = KNeighborsClassifier(
        20, metric="cosine", algorithm="brute", weights=lambda distance: np.exp((1 - distance) / 0.07)
    ).fit(train, labels)
    assert knn_probe(train, labels, test, test_labels) == pytest.approx(theirs.score(test, test_labels))
    assert 0.5 < theirs.score(test, test_labels) < 1


def test_chunks_change_nothing() -> None:
    (train, labels), (test, _) = data(100, 0), data(33, 1)
    whole = knn_votes(train, labels, test)
    torch.testing.assert_close(knn_votes(train, labels, test, chunk=7), whole)


def test_a_low_temperature_does_not_overflow() -> None:
    (train, labels), (test, _) = data(50, 0), data(5, 1)
    assert knn_votes(train, labels, test, temperature=1e-4).isfinite().all()  # exp(1e4) is not


def test_bad_input_says_so() -> None:
    train, labels = data(10, 0)
    with pytest.raises(ValueError, match="between 1 and the 10 training features, got 20"):
        knn_probe(train, labels, train, labels)
    with pytest.raises(ValueError, match="temperature must be a positive number"):
        knn_votes(train, labels, train, k=3, temperature=0.0)
    with pytest.raises(ValueError, match="1 of 120 training features are not finite"):
        knn_votes(torch.where(torch.arange(120).view(10, 12) == 3, torch.inf, train), labels, train, k=3)
