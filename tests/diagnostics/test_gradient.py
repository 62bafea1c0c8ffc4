import math

import numpy as np
import pytest
import torch

from reglet.diagnostics import gradient_norms, gradient_spikes
from reglet.losses import VISRegLoss


def test_norms_of_each_term() -> None:
    z = torch.randn(2, 16, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    terms = VISRegLoss(slices=64).terms(z)
    norms = gradient_norms(terms, z)
    assert list(norms) == list(terms)
    expected = (
        0.1 * 2 * (z - z.mean(0)).detach().norm() / z.numel()
    )  # (1 - lam) mean |z - centre|^2, through the centre too
    assert norms["invariance"] == pytest.approx(float(expected), rel=1e-4)
    (g,) = torch.autograd.grad(VISRegLoss(slices=64).terms(z)["scale"], z)
    assert norms["scale"] == pytest.approx(float(g.norm()))


def test_norms_over_parameters_and_terms_without_gradient() -> None:
    a, b = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    terms = {"both": 3 * a + 4 * b, "one": 7 * b, "none": torch.tensor(1.0)}
    assert gradient_norms(terms, [a, b]) == {"both": 5.0, "one": 7.0, "none": 0.0}
    assert gradient_norms({"other": 7 * b}, [a]) == {"other": 0.0}


def test_spikes_are_found_where_they_are() -> None:
    norms = [1.0] * 50 + [10.0] + [1.0] * 20 + [3.5] + [1.0] * 28
    found = gradient_spikes(norms)
    assert found.steps == [50, 71]
    assert found.share == pytest.approx(0.02)
    assert gradient_spikes(norms, factor=5.0).steps == [50]
    louder = gradient_spikes([100 * x for x in norms])  # a loss of another scale
    assert louder.steps == found.steps
    assert louder.variation == pytest.approx(found.variation)


def test_a_steady_decay_has_no_spikes_and_a_step_up_ends_being_one() -> None:
    assert gradient_spikes([math.exp(-i / 50) for i in range(300)]).steps == []
    steps = gradient_spikes([1.0] * 50 + [4.0] * 200).steps
    assert steps[0] == 50
    assert 0 < len(steps) < 60  # the average has caught up


def test_variation_is_the_deviation_about_the_average() -> None:
    rng = np.random.default_rng(0)
    quiet, loud = (gradient_spikes(list(1 + s * rng.uniform(-1, 1, 4000))).variation for s in (0.01, 0.3))
    assert quiet == pytest.approx(0.01 / math.sqrt(3), rel=0.1)
    assert loud == pytest.approx(0.3 / math.sqrt(3), rel=0.1)


def test_what_is_not_finite_is_a_spike() -> None:
    assert gradient_spikes([1.0, 1.0, float("nan"), float("inf"), 1.0]).steps == [2, 3]
    assert gradient_spikes([0.0, 0.0, 1.0, 1.0]).steps == []  # frozen at first: there is no scale yet
    with pytest.raises(ValueError, match="two gradient norms or more"):
        gradient_spikes([1.0])
