"""The distances of SIM: closed forms of the specification, invariances, gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reglet.blocks.distances import DISTANCES, STANDARDIZED, Standardize

EPS = 1e-6
standardize = Standardize(eps=EPS)


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def normalized(name: str, zy: Tensor, zx: Tensor) -> Tensor:
    return DISTANCES[name](standardize(zy), standardize(zx))


def test_standardize_is_the_formula() -> None:
    h = tokens(2, 7, 3)
    expected = (h - h.mean(1, keepdim=True)) / h.std(1, keepdim=True, unbiased=True)
    torch.testing.assert_close(standardize(h), expected, rtol=1e-9, atol=0)


def test_norm_mse_is_one_minus_the_correlation() -> None:
    """norm_mse = 2 (n - 1) / n (1 - mean corr over tokens)."""
    n, zy, zx = 12, tokens(3, 12, 5), tokens(3, 12, 5, seed=1)
    corr = torch.stack(
        [torch.corrcoef(torch.stack([zy[b, :, d], zx[b, :, d]]))[0, 1] for b in range(3) for d in range(5)]
    )
    expected = 2 * (n - 1) / n * (1 - corr.mean())
    torch.testing.assert_close(normalized("norm_mse", zy, zx), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("n", [4, 8])
def test_range_of_the_normalized_distances(n: int) -> None:
    """Zero for the same up to a positive affine map, 4 (n - 1) / n and 2 sqrt(D (n - 1) / n) for opposites.

    The latter is a bound that tokens of equal norm reach: those of a Hadamard matrix.
    """
    signs = torch.tensor([[-1.0 if (i & j).bit_count() % 2 else 1.0 for j in range(1, n)] for i in range(n)])
    z = signs.double()[None]
    d = n - 1
    assert normalized("norm_mse", z, 3 * z + 1) < 1e-9
    assert normalized("norm_l2", z, 3 * z + 1) < 2e-6  # the floor sqrt(1e-12) of the norm
    assert normalized("norm_mse", z, -z).item() == pytest.approx(4 * (n - 1) / n)
    assert normalized("norm_l2", z, -z).item() == pytest.approx(2 * math.sqrt(d * (n - 1) / n))
    other = tokens(2, n, d)
    assert normalized("norm_l2", other, -other) < 2 * math.sqrt(d * (n - 1) / n)


def test_independent_tokens_are_sqrt_two_apart() -> None:
    """sqrt(2 D (n - 1) / n) is 15.32 for D = 128, n = 12, and the mean of a norm is a little less."""
    value = normalized("norm_l2", tokens(64, 12, 128), tokens(64, 12, 128, seed=1)).item()
    assert value == pytest.approx(math.sqrt(2 * 128 * 11 / 12), rel=0.01)
    assert value == pytest.approx(15.28, abs=0.03)


@pytest.mark.parametrize("name", ["norm_l2", "norm_mse", "l1"])
def test_scale_and_shift_of_a_feature_change_nothing(name: str) -> None:
    zy, zx = tokens(2, 9, 4), tokens(2, 9, 4, seed=1)
    scale, shift = tokens(2, 1, 4, seed=2).abs() + 0.5, tokens(2, 1, 4, seed=3)
    expected = normalized(name, zy, zx)
    torch.testing.assert_close(normalized(name, scale * zy + shift, zx), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(normalized(name, zy, scale * zx + shift), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", sorted(DISTANCES))
def test_order_of_tokens_changes_nothing(name: str) -> None:
    zy, zx, order = tokens(2, 9, 4), tokens(2, 9, 4, seed=1), torch.randperm(9)
    for f in (normalized, lambda name, u, v: DISTANCES[name](u, v)):
        torch.testing.assert_close(f(name, zy[:, order], zx[:, order]), f(name, zy, zx))


def test_the_plain_distances_are_their_formulas() -> None:
    u, v = tokens(2, 5, 3), tokens(2, 5, 3, seed=1)
    d = {name: f(u, v).item() for name, f in DISTANCES.items()}
    p, q = v.softmax(-1), u.softmax(-1)
    assert d["mse"] == pytest.approx(F.mse_loss(u, v).item())
    assert d["l1"] == pytest.approx((u - v).abs().mean().item())
    assert d["smooth_l1"] == pytest.approx(F.smooth_l1_loss(u, v).item())
    assert d["cosine"] == pytest.approx(
        (F.normalize(u, dim=-1) - F.normalize(v, dim=-1)).square().sum(-1).mean().item()
    )
    assert d["kl"] == pytest.approx((p * (p.log() - q.log())).sum(-1).mean().item())
    pairs = [
        zip(sorted(u[i, :, k].tolist()), sorted(v[i, :, k].tolist()), strict=True) for i in (0, 1) for k in (0, 1, 2)
    ]
    assert d["wasserstein"] == pytest.approx(sum(abs(a - b) for pair in pairs for a, b in pair) / 30)


@pytest.mark.parametrize("name", sorted(DISTANCES))
def test_gradient(name: str) -> None:
    zy, zx = tokens(2, 5, 3).requires_grad_(), tokens(2, 5, 3, seed=1)
    f = (lambda t: normalized(name, t, zx)) if name in STANDARDIZED else (lambda t: DISTANCES[name](t, zx))
    assert torch.autograd.gradcheck(f, zy)


@pytest.mark.parametrize("name", sorted(DISTANCES))
@pytest.mark.parametrize("hard", ["dead", "equal", "zero"])
def test_finite_at_dead_features_and_equal_tokens(name: str, hard: str) -> None:
    zx = tokens(2, 5, 3, seed=1).float()
    zy = {"dead": torch.cat([zx[:, :, :2], torch.ones(2, 5, 1)], 2), "equal": zx.clone(), "zero": torch.zeros(2, 5, 3)}
    leaf = zy[hard].requires_grad_()
    value = normalized(name, leaf, zx) if name in STANDARDIZED else DISTANCES[name](leaf, zx)
    value.backward()
    assert value.isfinite()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
