import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from reglet.diagnostics.batch_dependence import batch_share, mode_gap
from reglet.diagnostics.collapse import covariance_rank, directions, noise_rank, relative_spread, same_image_auc


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
