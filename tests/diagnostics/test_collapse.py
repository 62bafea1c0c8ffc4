import math
from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping
import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from reglet.diagnostics.batch_dependence import batch_share, mode_gap
from reglet.diagnostics.collapse import (
    covariance_rank,
    directions,
    leading,
    noise_rank,
    relative_spread,
    same_image_auc,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "d"), [(64, 8), (200, 200), (100, 700), (1000, 64), (65, 64)])
def test_noise_has_the_rank_that_is_foreseen(n: int, d: int) -> None:
    measured = np.mean([covariance_rank(normal(n, d, seed=s)) for s in range(5)])
    assert noise_rank(n, d) == pytest.approx(measured, rel=0.03)


def test_spread_is_free_of_scale_and_rotation() -> None:
    z = normal(200, 5) + torch.tensor([3.0, 0, 0, 0, 0])
    expected = math.sqrt(float((z - z.mean(0)).square().sum() / z.square().sum()))
    assert relative_spread(z) == pytest.approx(expected)
    assert relative_spread(1e-9 * z) == pytest.approx(expected)
    assert relative_spread(torch.zeros(4, 3)) == 0
    assert relative_spread(1e-3 * normal(50, 3) + 1) < 2e-3


def test_directions_of_a_known_spectrum() -> None:
    z = torch.linalg.qr(normal(100, 6) - normal(100, 6).mean(0)).Q * torch.tensor([10.0, 3, 1, 0.01, 0.01, 0.01])
    assert directions(z, fraction=0.9) == 1  # 100 of 110
    assert directions(z, fraction=0.99) == 2  # 109 of 110
    assert directions(z) == 3
    assert directions(torch.ones(5, 2)) == 0


def test_auc_equals_scikit_learn() -> None:
    z = normal(30, 4)[None] + 1.2 * normal(2, 30, 4, seed=1)
    distance = torch.cdist(*z).numpy()
    rows = [roc_auc_score(np.arange(30) == i, -distance[i]) for i in range(30)]
    assert same_image_auc(z) == pytest.approx(np.mean(rows))
    assert same_image_auc(normal(1, 30, 4).expand(2, -1, -1)) == 1
    assert same_image_auc(torch.ones(2, 9, 3)) == 0.5
    assert abs(same_image_auc(normal(2, 800, 4)) - 0.5) < 0.04


def test_batch_share_of_known_variances() -> None:
    sample, mate = 2 * normal(1, 400, 8), normal(6, 400, 8, seed=1)
    assert batch_share(sample + mate) == pytest.approx(1 / 5, rel=0.05)
    assert batch_share(sample.expand(6, -1, -1)) == 0
    assert batch_share(mate) == pytest.approx(1, abs=0.02)


def test_batch_norm_leaks_more_in_small_batches() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)).double()
    x = normal(600, 6)

    def share(size: int) -> float:
        rows = []
        for b in range(6):
            mates = 8 + torch.randperm(592, generator=torch.Generator().manual_seed(b))[: size - 8]
            rows.append(net(torch.cat([x[:8], x[mates]]))[:8].detach())
        return batch_share(torch.stack(rows))

    assert share(16) > share(64) > 10 * share(400) > 0


def test_mode_gap() -> None:
    z = normal(500, 4)
    assert mode_gap(z, z) == 0
    assert mode_gap(z, z + torch.tensor([2.0, 0, 0, 0])) == pytest.approx(1, rel=0.05)  # 4 against 4 variances of 1
    assert mode_gap(torch.zeros(3, 2), torch.ones(3, 2)) == math.inf


def test_noise_rank_is_the_closed_form() -> None:
    """m exp(-m / 2M), with m and M of n - 1 and d: small numbers, at which an n that is off by one shows."""
    for n, d, m, most in ((3, 2, 2, 2), (3, 5, 2, 5), (9, 2, 2, 8), (2, 1, 1, 1)):
        assert noise_rank(n, d) == pytest.approx(m * math.exp(-m / (2 * most)), rel=1e-12)


def test_leading_counts_the_largest_that_hold_the_fraction() -> None:
    spectrum = torch.tensor([4.0, 3.0, 2.0, 1.0])
    assert [leading(spectrum, fraction=f) for f in (0.1, 0.4, 0.41, 0.7, 0.71, 0.95, 1.0)] == [1, 1, 2, 2, 3, 4, 4]
    assert leading(torch.tensor([0.1])) == 1
    assert leading(torch.zeros(3)) == 0
    # 99.9 %, if not said otherwise
    assert [leading(torch.tensor([1 - rest, rest], dtype=torch.float64)) for rest in (0.0009, 0.0011)] == [1, 2]
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0316], [0.0, -0.0316]])  # 0.0999 % in the second direction
    assert directions(z) == 1
    z[2:] *= 1.002
    assert directions(z) == 2


def test_small_numbers_by_hand() -> None:
    assert relative_spread(torch.tensor([[0.2], [0.6]])) == pytest.approx(math.sqrt(0.04 / 0.2))
    a = torch.tensor([[0.0], [1.0]])
    assert same_image_auc(torch.stack([a, torch.tensor([[0.0], [2.0]])])) == 0.75  # 1 is as far from 0 as from 2
    assert same_image_auc(torch.stack([a, torch.tensor([[1.0], [-1.0]])])) == 0.25  # 0 as far from both, 1 nearer to 1
    assert same_image_auc(torch.stack([a, torch.tensor([[1.0], [0.0]])])) == 0.0
    z = torch.tensor([[[0.0], [4.0]], [[2.0], [4.0]]])  # two batches of two samples
    # mates: variances 2 and 0, mean 1; samples: means 1 and 4, variance 4.5, less 1 / 2
    assert batch_share(z) == pytest.approx(1 / (1 + 4))
    assert batch_share(torch.tensor([[[0.0], [2.0]], [[2.0], [0.0]]])) == 1.0
    assert batch_share(torch.ones(3, 4, 2)) == 0.0
    assert mode_gap(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [3.0]])) == pytest.approx(0.5)
    assert mode_gap(torch.ones(3, 2), torch.ones(3, 2)) == 0.0


@contextmanager
def as_users_have_it() -> Iterator[None]:
    """Without jaxtyping's checks, which in tests would refuse wrong shapes before reglet does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@as_users_have_it()
def test_bad_input_is_refused() -> None:
    good, nan = normal(2, 4, 3), normal(2, 4, 3)
    nan[0, 1, 2] = math.nan
    for call, says in (
        (lambda: relative_spread(good[0, :1]), "at least 2 samples"),
        (lambda: noise_rank(1, 3), "n must be a whole number of at least 2, got 1"),
        (lambda: noise_rank(3, 0), "d must be a whole number of at least 1, got 0"),
        (lambda: same_image_auc(good[:, :1]), "expected views of two images or more, got 1"),
        (lambda: same_image_auc(normal(3, 4, 3)), "z must be"),
        (lambda: same_image_auc(nan), "embeddings"),
        (lambda: batch_share(good[:1]), "two samples or more in two batches or more"),
        (lambda: batch_share(good[:, :1]), "two samples or more in two batches or more"),
        (lambda: batch_share(good[0]), "z must be"),
        (lambda: batch_share(nan), "embeddings"),
        (lambda: mode_gap(good[0], good[0, :3]), "evaluation must be"),
        (lambda: mode_gap(nan[0], good[0]), "embeddings_in_training|embeddings in training"),
        (lambda: mode_gap(good[0], nan[0]), "embeddings_in_evaluation|embeddings in evaluation"),
    ):
        with pytest.raises(ValueError, match=says):
            call()
    assert batch_share(good) > 0  # two of two are enough
    assert same_image_auc(normal(2, 2, 3)) >= 0
