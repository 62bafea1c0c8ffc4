"""What the sweep of tests/contracts.py does not see of Weak-SIGReg, whose features are always wider than its sketch."""

import pytest
import torch
from tests.losses import oracles

from reglet import WeakSIGReg


def test_narrow_features_are_not_sketched() -> None:
    z = torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for slices in (5, 64):
        expected = torch.stack([oracles.weak_sigreg(view, torch.zeros(slices, 5)) for view in z]).mean()
        torch.testing.assert_close(WeakSIGReg(slices=slices)(z), expected)
    assert WeakSIGReg(slices=4)(z) != WeakSIGReg(slices=5)(z)


def test_white_features_are_at_the_minimum_and_a_sketch_of_them_near_k_over_sqrt_d() -> None:
    """E |S S^T - I|_F^2 = k (k + 1) / d for S of normal numbers of variance 1 / d."""
    q = torch.linalg.qr(torch.randn(400, 257, dtype=torch.float64))[0]
    q = torch.linalg.qr(q - q.mean(0))[0][:, :256] * 399**0.5
    assert WeakSIGReg(slices=256)(q) < 1e-6
    loss = WeakSIGReg(slices=16)
    values = torch.stack([loss(q) for _ in range(50)])
    assert values.square().mean().item() == pytest.approx(16 * 17 / 256, rel=0.15)  # 50 sketches of 136 numbers
