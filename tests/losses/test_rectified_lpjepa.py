"""Rectified LpJEPA: the target's distribution, what is the same in one step, and values known by hand."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from reglet import RDMReg, RectifiedLpJEPALoss
from reglet.losses.rectified_lpjepa import unit_variance


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def samples(loss: RDMReg, n: int, d: int, step: int = 0) -> Tensor:
    return loss.samples(loss.slices.at(step, normal(2, d)), n)


@pytest.mark.parametrize(("p", "mu", "sigma"), [(1.0, 0.0, None), (1.0, -1.0, 0.3), (2.0, 0.5, None), (0.7, 0.2, None)])
def test_the_target_is_a_rectified_generalized_normal(p: float, mu: float, sigma: float | None) -> None:
    """scipy's gennorm has density ~ exp(-|x / scale|^p), so that scale = sigma p^(1/p)."""
    loss = RDMReg(p=p, mu=mu, sigma=sigma, slices=8)
    x = samples(loss, 400, 50).flatten().numpy()
    before = stats.gennorm(p, loc=mu, scale=loss.sigma * p ** (1 / p))
    if sigma is None:
        assert before.var() == pytest.approx(1)
        assert loss.sigma == pytest.approx(unit_variance(p))
    zeros = before.cdf(0)
    assert (x == 0).mean() == pytest.approx(zeros, abs=4 * math.sqrt(zeros * (1 - zeros) / len(x)))
    assert x.min() == 0
    above = x[x > 0]
    found = stats.kstest(above, lambda t: (before.cdf(t) - zeros) / (1 - zeros))
    assert found.pvalue > 1e-3


def test_samples_belong_to_the_step_and_to_nothing_else() -> None:
    loss = RDMReg(slices=8)
    before = torch.get_rng_state()
    first = samples(loss, 6, 5)
    assert torch.equal(first, samples(loss, 6, 5))
    assert not torch.equal(first, samples(loss, 6, 5, step=1))
    assert not torch.equal(first, samples(RDMReg(slices=8, seed=1), 6, 5))
    assert torch.equal(before, torch.get_rng_state())
    z = normal(6, 5)
    values = [loss(z).item() for _ in range(2)]
    assert values[0] != values[1]
    again = RDMReg(slices=8)
    again.load_state_dict({name: value * 0 for name, value in loss.state_dict().items()})
    assert again(z).item() == values[0]


def test_columns_of_the_target_are_independent() -> None:
    x = samples(RDMReg(slices=8), 20_000, 4)
    off = np.corrcoef(x.T.numpy())[~np.eye(4, dtype=bool)]
    assert np.abs(off).max() < 4 / math.sqrt(20_000)


def test_the_targets_own_samples_have_no_loss() -> None:
    loss = RDMReg(slices=16)
    x = samples(loss, 12, 5)
    assert loss(x[torch.randperm(12, generator=torch.Generator().manual_seed(0))]).item() == pytest.approx(0, abs=1e-28)


def test_negative_numbers_count_as_zero() -> None:
    z = normal(2, 12, 5).requires_grad_()
    (grad,) = torch.autograd.grad(RectifiedLpJEPALoss(slices=16)(z), z)
    assert (grad[z < 0] == 0).all()
    assert (grad[z > 0] != 0).any()
    torch.testing.assert_close(RectifiedLpJEPALoss(slices=16)(z), RectifiedLpJEPALoss(slices=16)(z.relu()))


def test_a_collapsed_batch_by_hand() -> None:
    """sort(0 w) is 0, so that R is the mean square of projections of x: E |x|^2 / d for unit directions."""
    d, n = 6, 2000
    found = RDMReg(slices=512)(torch.zeros(n, d, dtype=torch.float64)).item()
    x = samples(RDMReg(slices=512), n, d)
    assert found == pytest.approx((x.square().sum(dim=1).mean() / d).item(), rel=0.15)  # 512 directions of six axes
    second = (x.square().mean()).item()
    assert second == pytest.approx(0.5, rel=0.1)  # half of a Laplace of variance 1


def test_the_invariance_is_the_mean_square_of_rectified_views() -> None:
    a = torch.tensor([[1.0, -5.0], [0.0, 2.0]])
    b = torch.tensor([[0.0, -1.0], [0.0, -3.0]])
    assert RectifiedLpJEPALoss(slices=4).terms(a, b)["invariance"].item() == pytest.approx(25 * (1 + 4) / 4)


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match=r"p must be a number from 0\.1 to 100, got 0\.0"):
        RDMReg(p=0.0)
    with pytest.raises(ValueError, match=r"sigma must be a positive number, got 0\.0"):
        RDMReg(sigma=0.0)
