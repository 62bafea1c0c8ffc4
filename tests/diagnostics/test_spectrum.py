"""Rank, spectrum and spread, against closed forms and numpy."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from reglet.diagnostics import (
    alpha_req,
    effective_rank,
    eigenspectrum,
    explained_variance,
    feature_std,
    lidar,
    rankme,
)
from reglet.diagnostics.spectrum import singular_values


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthonormal(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.linalg.qr(normal(n, d, seed=seed)).Q


def with_spectrum(eigenvalues: Tensor, n: int) -> Tensor:
    """Samples whose covariance has exactly these eigenvalues."""
    d = len(eigenvalues)
    base = torch.linalg.qr(
        normal(n, d) - normal(n, d).mean(0)
    ).Q  # centred columns stay centred: Q spans the same space
    return base * (eigenvalues * (n - 1)).sqrt() @ orthonormal(d, d, seed=1).T + 3.0


@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (20, 20)])
def test_spectrum_equals_numpy(shape: tuple[int, int]) -> None:
    z = normal(*shape)
    np.testing.assert_allclose(singular_values(z), np.linalg.svd(z.numpy(), compute_uv=False), atol=1e-7)
    theirs = np.sort(np.linalg.eigvalsh(np.cov(z.numpy().T)))[::-1][: min(shape)]
    np.testing.assert_allclose(eigenspectrum(z), theirs, atol=1e-10)
    np.testing.assert_allclose(explained_variance(z), np.cumsum(theirs) / theirs.sum(), atol=1e-10)
    np.testing.assert_allclose(feature_std(z), z.numpy().std(0, ddof=1))


def test_effective_rank_of_known_weights() -> None:
    assert effective_rank(torch.ones(7)) == pytest.approx(7)
    assert effective_rank(torch.tensor([1.0, 0.0, 0.0])) == pytest.approx(1)
    p = torch.tensor([0.5, 0.25, 0.25])
    assert effective_rank(8 * p) == pytest.approx(math.exp(1.5 * math.log(2)))
    assert effective_rank(torch.zeros(3)) == 0


def test_rankme_is_the_entropy_of_singular_values() -> None:
    z = orthonormal(30, 3) * torch.tensor([2.0, 1.0, 1.0]) @ orthonormal(8, 3).T
    assert rankme(z) == pytest.approx(math.exp(1.5 * math.log(2)), rel=1e-4)  # eps and rounding on five null directions
    assert rankme(z, eps=0.1) > rankme(z)
    assert rankme(5 * z) == pytest.approx(rankme(z))
    assert rankme(torch.zeros(4, 3)) == 0
    assert rankme(torch.ones(9, 5)) == pytest.approx(1, rel=1e-4)  # not centred: the mean is a direction
    assert rankme(normal(500, 16)) == pytest.approx(16, rel=0.01)


def naive_lidar(z: Tensor, delta: float) -> float:
    v, n, d = z.shape
    mu = z.mean(0)
    between, within = np.zeros((d, d)), np.zeros((d, d))
    for i in range(n):
        difference = (mu[i] - mu.mean(0)).numpy()
        between += np.outer(difference, difference) / n
        for k in range(v):
            within += np.outer((z[k, i] - mu[i]).numpy(), (z[k, i] - mu[i]).numpy()) / (n * v)
    values, vectors = np.linalg.eigh(within + delta * np.eye(d))
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    p = np.clip(np.linalg.eigvalsh(root @ between @ root), 0, None)
    p = p / p.sum() + 1e-7
    return float(np.exp(-(p * np.log(p)).sum()))


@pytest.mark.parametrize(("v", "n", "d"), [(3, 20, 6), (4, 5, 12)])
@pytest.mark.parametrize("delta", [1e-4, 0.3])
def test_lidar_equals_the_formula(v: int, n: int, d: int, delta: float) -> None:
    z = normal(n, d)[None] * torch.linspace(0.2, 2, d) + 0.3 * normal(v, n, d, seed=1)
    # for n < d, the d - n + 1 null eigenvalues contribute eps each in the formula and are left out here: 1e-7 log 1e-7
    assert lidar(z, delta=delta) == pytest.approx(naive_lidar(z, delta), rel=2e-5)


def test_lidar_counts_only_what_tells_images_apart() -> None:
    image = torch.cat([normal(400, 4), torch.zeros(400, 12)], 1)
    noise = torch.cat([torch.zeros(20, 400, 4), 5 * normal(20, 400, 12, seed=1)], 2)
    assert 3.8 < lidar(image + noise, delta=1e-2) < 4.3  # rankme would count the twelve noisy directions
    assert rankme((image + noise)[0]) > 11
    assert lidar(torch.ones(3, 5, 4)) == 0


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_alpha_req_of_a_power_law(alpha: float) -> None:
    z = with_spectrum(torch.arange(1, 31, dtype=torch.float64) ** -alpha, n=100)
    assert alpha_req(z) == pytest.approx(alpha, abs=1e-6)
    assert alpha_req(z, first=3, last=12) == pytest.approx(alpha, abs=1e-6)
    assert alpha_req(7 * z) == pytest.approx(alpha, abs=1e-6)


def test_alpha_req_looks_only_where_it_is_told() -> None:
    eigenvalues = torch.cat([torch.arange(1, 11, dtype=torch.float64) ** -1.0, torch.full((10,), 1e-3)])
    z = with_spectrum(eigenvalues.double(), n=100)
    assert alpha_req(z, last=10) == pytest.approx(1, abs=1e-6)
    assert alpha_req(z) > 1.5
    assert alpha_req(z, first=11) == pytest.approx(0, abs=1e-6)


def test_float32_and_half_are_computed_in_float64() -> None:
    z = normal(60, 10) + 100
    assert rankme(z.float()) == pytest.approx(rankme(z), rel=1e-5)
    np.testing.assert_allclose(eigenspectrum(z.float()), eigenspectrum(z), rtol=1e-4)


def test_bad_input_says_so() -> None:
    with pytest.raises(ValueError, match="1 of 12 features are not finite"):
        rankme(torch.tensor([[float("nan")] + 3 * [0.0]] + 2 * [4 * [0.0]]))
    with pytest.raises(ValueError, match=r"at least 2 samples, got \(1, 3\)"):
        eigenspectrum(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="two views of two images"):
        lidar(torch.zeros(1, 4, 3))
    with pytest.raises(ValueError, match="two eigenvalues or more"):
        alpha_req(torch.ones(5, 3))
