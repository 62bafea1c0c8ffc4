"""BHEP, Radial-VCReg and SIGReg in subspaces: values known by hand, and what each asks of a distribution."""

import math

import pytest
import torch
from torch import Tensor

from reglet import BHEP, RadialVCReg, SIGReg, SubspaceSIGReg


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("beta", [0.3, 1.0, None])
def test_bhep_of_a_point_and_of_normal_samples(beta: float | None) -> None:
    """E k(x, x') = (1 + 2 b^2)^(-d/2) = a for normal x and x', so that E T = (1 - a) / n."""
    d, n = 5, 40
    b2 = 1 / d if beta is None else beta**2
    a = (1 + 2 * b2) ** (-d / 2)
    point = BHEP(beta=beta)(torch.zeros(n, d, dtype=torch.float64)).item()
    assert point == pytest.approx(1 - 2 * (1 + b2) ** (-d / 2) + a, rel=1e-12)
    found = torch.stack([BHEP(beta=beta)(normal(n, d, seed=seed)) for seed in range(200)])
    error = (found.std() / len(found) ** 0.5).item()
    assert found.mean().item() == pytest.approx((1 - a) / n, abs=4 * error)


def test_bhep_has_its_own_beta_by_the_width() -> None:
    z = normal(2, 12, 16)
    torch.testing.assert_close(BHEP()(z), BHEP(beta=0.25)(z), rtol=0, atol=0)


def test_lengths_of_normal_vectors_have_no_divergence_from_chi() -> None:
    """Cross-entropy with chi, whose constant is log 2^(d/2 - 1) Gamma(d/2), minus entropy."""
    d = 6
    loss = RadialVCReg(variance=0.0, covariance=0.0, cross_entropy=1.0, entropy=1.0)
    constant = (d / 2 - 1) * math.log(2) + math.lgamma(d / 2)
    z = normal(4096, d)
    assert loss(z).item() + constant == pytest.approx(0, abs=0.1)  # spacings at the ends are cut
    sphere = math.sqrt(d) * z / z.norm(dim=1, keepdim=True)  # covariance I, all of one length
    assert loss(sphere).item() + constant > 5
    assert loss(1.5 * z).item() + constant > 1


def test_cross_entropy_is_still_at_the_mode_of_chi() -> None:
    z = normal(10, 5)
    z = (2 * z / z.norm(dim=1, keepdim=True)).requires_grad_()  # sqrt(d - 1)
    (gradient,) = torch.autograd.grad(RadialVCReg().terms(z)["cross_entropy"], z)
    assert gradient.norm() < 1e-12


def test_subspaces_are_orthonormal_and_stay() -> None:
    loss = SubspaceSIGReg(subspaces=3, slices=8)
    bases = loss.bases(normal(2, 9))
    assert bases.shape == (3, 3, 9)
    torch.testing.assert_close(bases @ bases.mT, torch.eye(3, dtype=torch.float64).expand(3, 3, 3))
    loss(normal(4, 9))
    assert torch.equal(loss.bases(normal(5, 9)), bases)
    assert not torch.equal(SubspaceSIGReg(subspaces=3, slices=8, seed=1).bases(normal(2, 9)), bases)
    assert not torch.allclose(bases[0], bases[1])
    with pytest.raises(ValueError, match="subspace_dim=10 is more than the 9 features"):
        SubspaceSIGReg(subspace_dim=10)(normal(4, 9))


def test_one_subspace_of_all_features_is_sigreg_turned() -> None:
    z = normal(2, 16, 6)
    loss = SubspaceSIGReg(subspaces=1, slices=32)
    (turn,) = loss.bases(z)
    torch.testing.assert_close(loss(z), SIGReg(slices=32)(z @ turn.T))
