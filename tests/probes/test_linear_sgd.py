import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from tests.probes.blobs import blobs, correlated
from torch import Tensor

from reglet.probes import linear_sgd_probe
from reglet.probes.check import check_features
from reglet.probes.linear_sgd import RATES
from reglet.probes.standard import Decorrelated, Standard


@pytest.mark.parametrize("weight_decay", [1e-3, 1e-2, 1e-1])
def test_agrees_with_scikit_learn_at_matched_regularisation(weight_decay: float) -> None:
    x, y = correlated(2000, 64, classes=5, spread=4.0)
    x_test, y_test = correlated(4000, 64, classes=5, spread=4.0, seed=1)
    score = linear_sgd_probe(x, y, x_test, y_test, weight_decay=weight_decay, epochs=40)
    scaler = StandardScaler().fit(x.double())
    theirs = LogisticRegression(C=1 / (2000 * weight_decay), max_iter=2000).fit(scaler.transform(x.double()), y)
    expected = theirs.score(scaler.transform(x_test.double()), y_test)
    assert score.accuracy == pytest.approx(expected, abs=0.003)
    assert 0.5 < expected < 0.9


def by_autograd(x: Tensor, y: Tensor, rate: float, *, epochs: int, batch: int, weight_decay: float) -> torch.nn.Linear:
    """The same training by torch's own layer, loss and optimizer."""
    layer = torch.nn.Linear(x.shape[1], int(y.max()) + 1)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    groups = [{"params": [layer.weight], "weight_decay": weight_decay}, {"params": [layer.bias]}]
    optimizer = torch.optim.SGD(groups, lr=rate, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    per_epoch = math.ceil(len(x) / batch)
    for step in range(epochs * per_epoch):
        if step % per_epoch == 0:
            batches = torch.randperm(len(x), generator=generator).tensor_split(per_epoch)
        for group in optimizer.param_groups:
            now = (1 + math.cos(math.pi * step / (epochs * per_epoch))) / 2
            group["lr"] = rate * now * (len(x) / per_epoch) / 256
        index = batches[step % per_epoch]
        optimizer.zero_grad()
        F.cross_entropy(layer(x[index]), y[index]).backward()
        optimizer.step()
    return layer


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_equals_the_same_training_by_autograd(weight_decay: float) -> None:
    x, y = correlated(300, 7)
    x_test, y_test = correlated(50, 7, seed=1)
    score = linear_sgd_probe(
        x, y, x_test, y_test, rates=[0.1], epochs=3, batch=64, weight_decay=weight_decay, damping=None
    )
    standard = Standard(x)
    layer = by_autograd(standard(x).float(), y, 0.1, epochs=3, batch=64, weight_decay=weight_decay)
    expected = layer(standard(x_test).float())
    torch.testing.assert_close(score.logits, expected.detach(), rtol=1e-4, atol=1e-5)
    assert score.accuracy == float((expected.argmax(1) == y_test).double().mean())


def test_a_head_learns_the_same_alone_and_among_others() -> None:
    x, y = correlated(400, 10)
    x_test, y_test = correlated(100, 10, seed=1)
    among = linear_sgd_probe(x, y, x_test, y_test)
    alone = linear_sgd_probe(x, y, x_test, y_test, rates=[among.rate])
    torch.testing.assert_close(alone.logits, among.logits)
    assert alone.validation == {}


def test_every_rate_is_trained_with_its_own() -> None:
    x, y = correlated(400, 10)
    validation = linear_sgd_probe(x, y, x, y, epochs=1).validation
    assert tuple(validation) == RATES
    scores = list(validation.values())
    assert all(a < b for a, b in itertools.pairwise(scores[:9]))  # after one epoch more is better
    assert scores[0] == pytest.approx(-math.log(4), abs=0.01)  # and the lowest has hardly moved


def test_the_rate_is_chosen_without_the_test_set() -> None:
    x, y = correlated(300, 20, spread=4.0)
    x_test, y_test = correlated(100, 20, spread=4.0, seed=1)
    honest = linear_sgd_probe(x, y, x_test, y_test)
    perverse = linear_sgd_probe(x, y, x_test.flip(0) * 5, (y_test + 1) % 4)
    assert honest.validation == perverse.validation
    assert honest.rate == perverse.rate == max(honest.validation, key=honest.validation.__getitem__)


def test_decorrelated_coordinates_and_their_penalty() -> None:
    x = Standard(correlated(500, 12)[0])(correlated(500, 12)[0])
    variance = torch.linalg.eigvalsh(x.T @ x / 500)
    assert variance[-1] > 20 * variance.median()
    decorrelated = Decorrelated(x, damping=0.1)
    u = decorrelated(x)
    torch.testing.assert_close(u.T @ u / 500, torch.diag(variance / (variance + 0.1)), atol=1e-9, rtol=1e-9)
    w = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w2 = torch.linalg.lstsq(u, x @ w).solution  # the classifier w in the new coordinates
    torch.testing.assert_close((decorrelated.penalty[:, None] * w2.square()).sum(), w.square().sum())


def test_more_features_than_samples_and_constant_ones() -> None:
    x, y = blobs(40, 100)
    x_test, y_test = blobs(200, 100, seed=1)
    x[:, 3], x_test[:, 3] = 2.0, 7.0
    assert linear_sgd_probe(x, y, x_test, y_test).accuracy > 0.9


def test_leaves_the_global_generator_alone_and_repeats_itself() -> None:
    x, y = correlated(100, 5)
    before = torch.get_rng_state()
    first, second = (linear_sgd_probe(x, y, x, y) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.logits, second.logits)
    other = linear_sgd_probe(x, y, x, y, seed=1)
    assert not torch.equal(first.logits, other.logits)


def test_bad_input_says_so() -> None:
    x, y = blobs(40, 3)
    for wrong in ({"epochs": 0}, {"batch": 0}, {"weight_decay": -1.0}, {"damping": 0.0}):
        with pytest.raises(ValueError, match=r"must be a (whole |positive )?number"):
            linear_sgd_probe(x, y, x, y, **wrong)
    with pytest.raises(TypeError, match="rates must be a"):
        linear_sgd_probe(x, y, x, y, rates=[])
    with pytest.raises(ValueError, match="all 40 training labels are 2: there is one class only"):
        linear_sgd_probe(x, torch.full((40,), 2), x, y)
    with pytest.raises(ValueError, match="3 training features are fewer than the 4 classes"):
        linear_sgd_probe(x[1:4], y[1:4], x, y)
    with pytest.raises(ValueError, match=r"must agree in d, got \(40, 3\) and \(40, 2\)"):
        check_features(x, y, x[:, :2])
    with pytest.raises(ValueError, match="one label for each training feature, got 40 and 39"):
        check_features(x, y[1:], x)
