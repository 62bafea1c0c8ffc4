import pytest
import torch
from torch import Tensor, nn

from reglet.probes import linear_probe, mlp_probe
from reglet.probes.mlp import _network


def rings(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two classes by distance from the centre, which no linear classifier tells apart."""
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))
    return x, (x.norm(dim=1) > 1.83).long()  # about half of them


def test_reads_what_a_linear_classifier_cannot() -> None:
    (x, y), (x_test, y_test) = rings(1000, 0), rings(500, 1)
    assert linear_probe(x, y, x_test, y_test).accuracy < 0.65
    score = mlp_probe(x, y, x_test, y_test, width=64, epochs=20)
    assert score.accuracy > 0.9
    assert score.rate == max(score.validation, key=score.validation.__getitem__)
    assert score.accuracy == float((score.logits.argmax(1) == y_test).double().mean())


def test_the_rate_is_chosen_without_the_test_set() -> None:
    (x, y), (x_test, y_test) = rings(300, 0), rings(100, 1)
    honest = mlp_probe(x, y, x_test, y_test, width=16, epochs=3)
    perverse = mlp_probe(x, y, 3 * x_test, 1 - y_test, width=16, epochs=3)
    assert honest.validation == perverse.validation
    assert len(set(honest.validation.values())) > 1


def test_has_three_layers() -> None:
    net = _network(7, 1024, 5)
    sizes = [(layer.in_features, layer.out_features) for layer in net if isinstance(layer, nn.Linear)]
    assert sizes == [(7, 1024), (1024, 1024), (1024, 5)]
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in net) == 2


def test_repeats_itself_leaves_the_global_generator_alone_and_works_under_no_grad() -> None:
    x, y = rings(100, 0)
    before = torch.get_rng_state()
    with torch.no_grad():
        first, second = (mlp_probe(x, y, x, y, width=8, rates=[1e-2], epochs=2) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.logits, second.logits)
    assert not first.logits.requires_grad
    assert not torch.equal(first.logits, mlp_probe(x, y, x, y, width=8, rates=[1e-2], epochs=2, seed=1).logits)


def test_bad_input_says_so() -> None:
    x, y = rings(40, 0)
    with pytest.raises(ValueError, match="batch must be a whole number of at least 2"):
        mlp_probe(x, y, x, y, batch=1)
    with pytest.raises(ValueError, match="one class only"):
        mlp_probe(x, torch.zeros_like(y), x, y)
