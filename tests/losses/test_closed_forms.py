"""Values known by hand: the numbers that the papers and their specifications print, and the identities behind them."""

import math
from itertools import pairwise
from statistics import NormalDist

import pytest
import torch
from tests.losses import oracles
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from reglet import (
    SWD,
    BarlowTwinsLoss,
    LeJEPALoss,
    NTXentLoss,
    SIGReg,
    SMILoss,
    SWDLoss,
    VICRegLoss,
    VISReg,
    VISRegLoss,
)
from reglet.losses import cpu_slices
from reglet.losses.sigreg import epps_pulley
from reglet.losses.swd import sliced_wasserstein
from reglet.losses.visreg import visreg_shape

SECOND_MOMENT = {8: 0.5699, 16: 0.7164, 32: 0.8216, 64: 0.8918, 128: 0.9362, 256: 0.9631, 512: 0.9791, 1024: 0.9883}


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def directions(k: int, d: int, seed: int = 1) -> Tensor:
    w = randn(k, d, seed=seed)
    return w / w.norm(dim=1, keepdim=True)


def rotation(d: int, seed: int = 2) -> Tensor:
    return torch.linalg.qr(randn(d, d, seed=seed)).Q


def whitened(z: Tensor) -> Tensor:
    """Zero mean, identity covariance (biased), per view."""
    zc = z - z.mean(dim=1, keepdim=True)
    u, _, vh = torch.linalg.svd(zc, full_matrices=False)
    return math.sqrt(z.shape[1]) * u @ vh


def gradient(value: Tensor, z: Tensor) -> Tensor:
    return torch.autograd.grad(value, z)[0]


# VISReg and SWD


def test_quantiles() -> None:
    """The oracle's own quantiles, against the standard library's inverse normal."""
    for n in (2, 7, 100):
        weibull = [NormalDist().inv_cdf(i / (n + 1)) for i in range(1, n + 1)]
        hazen = [NormalDist().inv_cdf((i - 0.5) / n) for i in range(1, n + 1)]
        torch.testing.assert_close(oracles.quantiles(n), torch.tensor(weibull, dtype=torch.float64))
        torch.testing.assert_close(oracles.quantiles(n, "hazen"), torch.tensor(hazen, dtype=torch.float64))


@pytest.mark.parametrize("n", SECOND_MOMENT)
def test_shape_of_a_point_is_the_second_moment_of_the_quantiles(n: int) -> None:
    point = torch.full((1, n, 3), 0.7, dtype=torch.float64)
    shape = VISReg(slices=8).terms(point)["shape"].item()
    assert shape == pytest.approx(SECOND_MOMENT[n], abs=5e-5)
    assert SWD(slices=8)(torch.zeros_like(point)).item() == pytest.approx(SECOND_MOMENT[n], abs=5e-5)
    hazen = VISReg(slices=8, positions="hazen").terms(point)["shape"].item()
    assert shape < hazen < 1, "Hazen's positions have nearly unit variance"


def test_clamped_quantiles_change_swd_beyond_ten_thousand_samples() -> None:
    for n in (100, 20_000):
        q = oracles.quantiles(n)
        got = sliced_wasserstein(torch.zeros(1, n, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
        tail = NormalDist().inv_cdf(1 - 1e-4)
        assert got.item() == pytest.approx(q.clamp(-tail, tail).square().mean().item(), rel=1e-12)
        assert (got < q.square().mean() - 1e-9) == (n > 10_000)


@pytest.mark.parametrize("n", [16, 64, 256])
def test_floor_of_shape_in_one_dimension(n: int) -> None:
    """Unit variance, ideal shape: (1 - sqrt(m2))^2, because the quantiles' own variance is m2 < 1."""
    q = oracles.quantiles(n)
    m2 = q.square().mean().item()
    z = (q / math.sqrt(m2))[torch.randperm(n, generator=torch.Generator().manual_seed(0))].view(1, n, 1)
    got = visreg_shape(z, torch.ones(1, 1, dtype=torch.float64), eps=1e-12).item()
    assert got == pytest.approx((1 - math.sqrt(m2)) ** 2, rel=1e-8)
    if n == 64:
        assert got == pytest.approx(0.0031, abs=5e-5)


def per_sample_gradient(loss: torch.nn.Module, r: float) -> float:
    """mean_{v,i} |dL/dz_vi| of rows of length r: V = 2, N = 64, D = 512."""
    z = torch.randn(2, 64, 512, generator=torch.Generator().manual_seed(0))
    z = (r * z / z.norm(dim=2, keepdim=True)).requires_grad_()
    return gradient(loss(z), z).norm(dim=2).mean().item()


COLLAPSE = {  # the specification's table, section 1.8
    "VICReg": (
        {1e-5: 1.73e-2, 1e-4: 1.73e-2, 1e-2: 1.73e-2, 1.0: 1.66e-2},
        lambda: VICRegLoss(variant="visreg"),
    ),
    "Barlow": ({1e-5: 1.48e5, 1e-4: 1.06e5, 1e-2: 1.60e3, 1.0: 16.0}, lambda: BarlowTwinsLoss(variant="visreg")),
    "SWD": ({0.0: 1.49e-3, 1e-5: 1.94e-3, 1e-4: 1.94e-3, 1e-2: 1.94e-3, 1.0: 1.85e-3}, lambda: SWD(slices=64)),
    "SIGReg": ({1e-5: 9.0e-8, 1e-4: 9.0e-7, 1e-2: 9.0e-5, 1.0: 8.9e-3}, lambda: SIGReg(slices=64)),
    "VISReg": ({0.0: 1.49e3, 1e-5: 923, 1e-4: 71.9, 1e-2: 0.765, 1.0: 7.6e-3}, lambda: VISReg(slices=64)),
}


@pytest.mark.parametrize("name", COLLAPSE)
def test_collapse_figure(name: str) -> None:
    """Other embeddings and other slices than the specification's: within 10 %."""
    table, build = COLLAPSE[name]
    for r, want in table.items():
        assert per_sample_gradient(build(), r) == pytest.approx(want, rel=0.1), f"radius {r}"


@pytest.mark.parametrize(
    ("name", "radii", "slope"),
    [
        ("SIGReg", (1e-5, 1e-3, 1e-1), 1.0),  # the gradient vanishes with the radius
        ("VISReg", (1e-4, 1e-2, 1.0), -1.0),  # and grows, until eps
        ("SWD", (1e-5, 1e-3, 1e-1), 0.0),
        ("VICReg", (1e-5, 1e-3, 1e-1), 0.0),
        ("Barlow", (1e-3, 1e-2, 1e-1, 1.0), -1.0),
    ],
)
def test_collapse_slopes(name: str, radii: tuple[float, ...], slope: float) -> None:
    norms = [per_sample_gradient(COLLAPSE[name][1](), r) for r in radii]
    for a, b, left, right in zip(norms, norms[1:], radii, radii[1:], strict=False):
        assert math.log(b / a) / math.log(right / left) == pytest.approx(slope, abs=0.05)


def test_collapse_plateaus() -> None:
    """Below eps VISReg's gradient stands near 1.8e3, and Barlow's falls again."""
    for r in (1e-7, 1e-8):
        assert per_sample_gradient(VISReg(slices=64), r) == pytest.approx(1.8e3, rel=0.15)
    falling = [per_sample_gradient(BarlowTwinsLoss(variant="visreg"), r) for r in (1e-5, 1e-6, 1e-7)]
    assert falling[0] > falling[1] > falling[2]
    for name in ("VICReg", "Barlow", "SIGReg"):
        assert per_sample_gradient(COLLAPSE[name][1](), 0.0) == 0, "of exact collapse only the sorts escape"


@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_gradient_of_scale(eps: float) -> None:
    """2 (std_j - 1) zc_ij / (V D N sigma_j), sigma = std - eps."""
    v, n, d = 2, 9, 4
    z = (randn(v, n, d) * torch.tensor([0.1, 0.5, 1.0, 3.0])).requires_grad_()
    got = gradient(VISReg(slices=4, eps=eps).terms(z)["scale"], z)
    zc = z.detach() - z.detach().mean(dim=1, keepdim=True)
    sigma = zc.square().mean(dim=1, keepdim=True).sqrt()
    torch.testing.assert_close(got, 2 * (sigma + eps - 1) * zc / (v * d * n * sigma), rtol=1e-10, atol=1e-14)


def test_radial_identities_of_shape() -> None:
    """Per feature, the gradient never moves the mean; without detach, nor the scale; with detach it contracts."""
    v, n, d, k, eps = 2, 16, 5, 32, 1e-12
    w = directions(k, d)
    z = randn(v, n, d).requires_grad_()
    zc = z.detach() - z.detach().mean(dim=1, keepdim=True)
    for detach in (True, False):
        grad = gradient(visreg_shape(z, w, eps=eps, detach=detach), z)
        torch.testing.assert_close(grad.sum(dim=1), torch.zeros(v, d, dtype=torch.float64), rtol=0, atol=1e-15)
        radial = (zc * grad).sum(dim=1)
        if not detach:
            assert radial.abs().max() < 1e-11 * grad.norm()
    std = zc.square().mean(dim=1, keepdim=True).sqrt() + eps
    p = (zc / std @ w.T).sort(dim=1).values
    q = oracles.quantiles(n)[:, None]
    want = 2 * (p.square().mean() - (p * q).mean())
    grad = gradient(visreg_shape(z, w, eps=eps), z)
    torch.testing.assert_close((zc * grad).sum(), want, rtol=1e-10, atol=1e-14)
    assert want > 0, "gradient descent pulls inwards"


def deviation_after(n: int, scale: float, shape: float, *, rate: float, steps: int, detach: bool = True) -> list[float]:
    """Free embeddings under SGD, from unit deviation: the mean deviation after each step."""
    d = 8
    z = randn(1, n, d).float()
    z = z / z.std(dim=1, unbiased=False)
    loss = VISReg(slices=64, scale=scale, shape=shape, detach=detach)
    seen = []
    for _ in range(steps):
        z = z.detach().requires_grad_()
        z = z - rate * n * d * gradient(loss(z), z)
        seen.append(z.detach().std(dim=1, unbiased=False).mean().item())
    return seen


def predicted(n: int, scale: float, shape: float) -> float:
    """The larger root of scale (1 - s) s = shape (1 - rho), with the best rho = sqrt(m2)."""
    rho = math.sqrt(oracles.quantiles(n).square().mean().item())
    return (1 + math.sqrt(1 - 4 * shape / scale * (1 - rho))) / 2


@pytest.mark.parametrize(
    ("n", "scale", "shape", "measured"),
    [
        (64, 1.0, 1.0, 0.934),
        (256, 1.0, 1.0, 0.979),
        (256, 0.5, 2.0, 0.909),
        (256, 2.0, 0.5, 0.995),
        (16, 1.0, 1.0, 0.780),
    ],
)
def test_equilibrium(n: int, scale: float, shape: float, measured: float) -> None:
    """As the specification measured, and just below the prediction, because rho < sqrt(m2)."""
    s = deviation_after(n, scale, shape, rate=0.2 / max(scale, shape), steps=200)[-1]
    assert s == pytest.approx(measured, abs=0.02)
    assert predicted(n, scale, shape) - 0.05 < s < predicted(n, scale, shape)


def test_too_much_shape_collapses() -> None:
    assert 4 * 2 * (1 - math.sqrt(SECOND_MOMENT[32])) > 0.5, "no equilibrium exists"
    assert deviation_after(32, 0.5, 2.0, rate=0.02, steps=200)[-1] < 0.2


def test_shape_alone_contracts_only_with_detach() -> None:
    falling = deviation_after(64, 0.0, 1.0, rate=0.02, steps=150)
    assert falling[-1] < 0.6
    assert all(later < earlier for earlier, later in pairwise(falling[9::20]))
    assert deviation_after(64, 0.0, 1.0, rate=0.02, steps=150, detach=False)[-1] == pytest.approx(1, abs=0.05)


# SIGReg


def test_sigreg_of_a_point() -> None:
    for n in (4, 50):
        z = torch.zeros(2, n, 3, dtype=torch.float64)
        assert SIGReg(slices=8)(z).item() / n == pytest.approx(0.40205, abs=5e-6)
        fine = epps_pulley(z, directions(3, 3), knots=2001, t_max=12.0).item() / n
        assert fine == pytest.approx(0.40892, abs=5e-6)
        assert fine == pytest.approx(math.sqrt(2 * math.pi) * (1 - math.sqrt(2) + 1 / math.sqrt(3)), rel=1e-12)


def test_sigreg_quadrature_is_the_closed_form() -> None:
    """On numbers that no symmetry helps."""
    w = torch.ones(1, 1, dtype=torch.float64)
    for n in (3, 40):
        x = 1.7 * randn(n, seed=n) + 0.4
        got = epps_pulley(x.view(1, n, 1), w, knots=2001, t_max=12.0)
        torch.testing.assert_close(got, oracles.epps_pulley_exact(x), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n", [8, 64])
def test_sigreg_of_normal_samples_does_not_depend_on_n(n: int) -> None:
    """E T = sum_k c_k phi_k (1 - phi_k^2), which is sqrt(2 pi) (1 - 1/sqrt 3) on the whole line."""
    runs = 2000
    x = randn(runs, n, 1, seed=n)  # as many views as runs, of one dimension
    w = torch.ones(1, 1, dtype=torch.float64)
    got = epps_pulley(x, w, knots=101, t_max=6.0).item()
    spread = torch.stack([epps_pulley(part, w, knots=101, t_max=6.0) for part in x.split(runs // 20)]).std().item()
    assert got == pytest.approx(math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3)), abs=4 * spread / math.sqrt(20))
    assert math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3)) == pytest.approx(1.0594, abs=5e-5)


# VICReg, Barlow Twins, NT-Xent


def test_vicreg_of_constants() -> None:
    z = torch.full((2, 8, 5), 3.0)
    assert VICRegLoss()(z).item() == pytest.approx(25 * (1 - math.sqrt(1e-4)))
    assert VICRegLoss()(z).item() == pytest.approx(24.75)
    assert VICRegLoss(variant="solo")(z).item() == pytest.approx(49.5)
    assert VICRegLoss(variant="paper")(z).item() == pytest.approx(49.5)
    assert VICRegLoss(variant="visreg")(z).item() == pytest.approx(25 * (1 - 1e-6) ** 2)


def test_vicreg_variants_on_one_tensor() -> None:
    """One name, several losses: how they relate."""
    z = 0.3 * randn(2, 12, 5)
    official, paper, solo = (VICRegLoss(variant=name).terms(z) for name in ("official", "paper", "solo"))
    torch.testing.assert_close(paper["invariance"], 5 * official["invariance"])
    torch.testing.assert_close(solo["invariance"], official["invariance"])
    for other in (paper, solo):
        torch.testing.assert_close(other["variance"], 2 * official["variance"])
        torch.testing.assert_close(other["covariance"], official["covariance"])


def test_barlow_of_constants_is_d() -> None:
    for d in (3, 40):
        z = torch.full((2, 8, d), 2.0)
        assert BarlowTwinsLoss()(z).item() == pytest.approx(d)
        assert BarlowTwinsLoss(variant="visreg")(z).item() == pytest.approx(d)


def test_barlow_of_white_twins() -> None:
    """~0 but for eps; visreg's variant stops at c_ii = (n - 1) / n."""
    n, d = 32, 6
    z = whitened(randn(1, n, d)).expand(2, -1, -1)
    assert BarlowTwinsLoss()(z).item() == pytest.approx(d * (1 - 1 / (1 + 1e-5)) ** 2, rel=1e-6)
    unbiased = math.sqrt(n / (n - 1))
    want = d * (1 - 1 / (unbiased + 1e-6) ** 2) ** 2  # but for its eps, d / n^2
    assert BarlowTwinsLoss(variant="visreg")(z).item() == pytest.approx(want, rel=1e-8)


@pytest.mark.parametrize("temperature", [0.07, 0.5, 2.0])
def test_ntxent_of_equal_embeddings(temperature: float) -> None:
    for n in (2, 33):
        got = NTXentLoss(temperature=temperature)(torch.ones(2, n, 4, dtype=torch.float64)).item()
        assert got == pytest.approx(math.log(2 * n - 1), rel=1e-12)


def test_ntxent_of_orthogonal_pairs() -> None:
    """Positives at cosine 1 and all others at 0: log(1 + (2n - 2) e^(-1/tau))."""
    n = 6
    z = torch.eye(n, dtype=torch.float64).expand(2, n, n)
    want = math.log(1 + (2 * n - 2) * math.exp(-1 / 0.5))
    assert NTXentLoss()(3 * z).item() == pytest.approx(want, rel=1e-12)


# Invariances


def test_what_rotation_changes() -> None:
    """Embeddings and directions turned together: SWD and SIGReg see no axes, VISReg standardises along them."""
    d = 6
    z, w, R = randn(2, 30, d) * torch.arange(1, d + 1), directions(40, d), rotation(d)
    for loss in (sliced_wasserstein, epps_pulley):
        torch.testing.assert_close(loss(z @ R, w @ R), loss(z, w), rtol=1e-12, atol=1e-12)
    assert abs(visreg_shape(z @ R, w @ R) - visreg_shape(z, w)) > 1e-2
    white = whitened(z)  # of one scale in every direction
    torch.testing.assert_close(visreg_shape(white @ R, w @ R), visreg_shape(white, w), rtol=1e-9, atol=1e-12)


def test_shape_is_invariant_to_scale_and_shift_of_every_feature() -> None:
    z, w = randn(2, 20, 5), directions(16, 5)
    moved = z * torch.tensor([0.1, 1.0, 3.0, 7.0, 50.0]) + torch.tensor([5.0, -3.0, 0.0, 1.0, 100.0])
    torch.testing.assert_close(visreg_shape(moved, w, eps=1e-12), visreg_shape(z, w, eps=1e-12), rtol=1e-10, atol=0)
    assert abs(visreg_shape(moved, w, eps=0.1) - visreg_shape(z, w, eps=0.1)) > 1e-3, "eps is what it sees"


def test_regularizers_do_not_care_which_sample_is_which_in_each_view() -> None:
    z = randn(3, 20, 5)
    mixed = torch.stack(
        [view[torch.randperm(20, generator=torch.Generator().manual_seed(i))] for i, view in enumerate(z)]
    )
    for build in (VISReg, SWD, SIGReg):
        torch.testing.assert_close(build(slices=16)(mixed), build(slices=16)(z), rtol=1e-12, atol=0)


def test_invariance_ignores_what_views_share() -> None:
    z = randn(1, 20, 5).expand(3, -1, -1)
    for build in (VISRegLoss, SWDLoss, LeJEPALoss):
        assert build(slices=8).terms(z)["invariance"] < 1e-30
        apart = build(slices=8, lam=0.0)(torch.stack([z[0] + 1, z[0] - 1]))
        assert apart.item() == pytest.approx(1.0, rel=1e-12), "both views one away from their centre"


@pytest.mark.parametrize("count", [1000, 2])
def test_many_slices_at_once_or_few_at_a_time_on_several_threads(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A thousand slices are three shares for three threads; of two, one thread has none."""
    monkeypatch.setattr(cpu_slices, "WORTHWHILE", 0)
    z, w = randn(2, 300, 8).float(), directions(count, 8).float()
    before = torch.get_num_threads()
    try:
        values = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            leaf = z.clone().requires_grad_()
            value = sliced_wasserstein(leaf, w)
            values.append((value.detach(), gradient(value, leaf)))
    finally:
        torch.set_num_threads(before)
    for a, b in zip(*values, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9)
    want = oracles.sliced_wasserstein(z.double(), w.double())
    assert values[0][0].item() == pytest.approx(want.item(), rel=1e-5)


# SMI


def related(rho: float, n: int = 2, d: int = 8) -> Tensor:
    """(2, n, d): the views of each sample correlate over features by exactly rho."""
    basis = torch.linalg.qr(torch.cat([torch.ones(d, 1, dtype=torch.float64), randn(d, 2 * n)], dim=1)).Q[:, 1:].T
    a, b = basis[:n], basis[n : 2 * n]
    return torch.stack([a, rho * a + math.sqrt(1 - rho**2) * b])


def information(rho: float, eps: float) -> float:
    z = 3 * related(rho) + 2
    return -SMILoss(on="neg", weight=0.0, eps=eps)(z).item()


def test_information_of_known_correlations() -> None:
    for sign in (1, -1):
        assert information(0.0, 1e-12) == pytest.approx(0, abs=1e-11)
        assert information(sign * 0.5, 1e-12) == pytest.approx(0.143841, abs=5e-7)
        assert information(sign * 0.8, 1e-12) == pytest.approx(0.510826, abs=5e-7)
        assert information(sign * math.sqrt(1 - math.exp(-2)), 1e-12) == pytest.approx(1, rel=1e-10)
        assert information(sign * 1.0, 1e-6) == pytest.approx(6.9078, abs=5e-5)
        assert information(sign * 1.0, 1e-6) == pytest.approx(-0.5 * math.log(1e-6), rel=1e-6)


def test_smi_forms_at_known_correlations() -> None:
    best = math.sqrt(1 - math.exp(-2))
    assert best == pytest.approx(0.92987, abs=5e-6)
    for on in ("sq", "hinge"):
        assert SMILoss(on=on, weight=0.0, eps=1e-12)(related(best)).item() == pytest.approx(0, abs=1e-18)
        below = SMILoss(on=on, weight=0.0, eps=1e-12)(related(0.5)).item()
        assert below == pytest.approx((1 - 0.143841) ** 2, abs=1e-6)
    assert SMILoss(weight=0.0)(related(1.0)).item() == pytest.approx(34.9, abs=0.05), "beyond it the square rises"
    assert SMILoss(on="hinge", weight=0.0)(related(1.0)).item() == 0
    half = -0.5 * math.log(1 - 0.25 + 1e-6)
    assert SMILoss(weight=0.0, target=half)(related(0.5)).item() == pytest.approx(0, abs=1e-18)
    signed = SMILoss(weight=0.0, signed=True)
    assert signed(related(-0.8)).item() == pytest.approx(1, rel=1e-5), "an anti-correlated pair counts as unrelated"
    assert signed(related(0.8)).item() == pytest.approx((1 - 0.510826) ** 2, rel=1e-4)


def test_smi_of_orthogonal_twins() -> None:
    """Centred orthogonal rows, z1 = z2: L_off = 0, L_on = n (1 + ln(eps) / 2)^2."""
    n, eps = 5, 1e-6
    z = related(1.0, n=n, d=16)
    terms = SMILoss(reduction="sum", eps=eps).terms(z)
    assert terms["alignment"].item() == pytest.approx(n * (1 + 0.5 * math.log(eps)) ** 2, rel=1e-9)
    # L_off is 3 n (n - 1) times (log(1 + eps) / 2)^2: the eps of the paper's own formula
    assert terms["redundancy"].item() == pytest.approx(0.1 * 3 * n * (n - 1) * (0.5 * math.log1p(eps)) ** 2, rel=1e-6)


def test_smi_is_corrcoef_of_the_stacked_rows() -> None:
    n, weight, eps = 7, 0.3, 1e-5
    z = randn(2, n, 11)
    rho = torch.corrcoef(z.flatten(0, 1))
    info = -0.5 * torch.log(1 - rho.square() + eps)
    blocks = info[:n, n:], info[:n, :n], info[n:, n:]
    off = sum(oracles.off_diagonal(block).square().sum() for block in blocks)
    want = (1 - blocks[0].diagonal()).square().sum() + weight * off
    got = SMILoss(weight=weight, eps=eps, reduction="sum")(z)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=0)
    torch.testing.assert_close(SMILoss(weight=weight, eps=eps)(z), want / n, rtol=1e-10, atol=0)


def test_smi_pairs_add_up() -> None:
    z = randn(2, 7, 11)
    whole = SMILoss().terms(z)
    parts = [SMILoss(pairs=(pair,)).terms(z) for pair in ("12", "11", "22")]
    torch.testing.assert_close(sum(part["redundancy"] for part in parts), whole["redundancy"])
    assert all(part["alignment"] == whole["alignment"] for part in parts)
    assert SMILoss(weight=0.0).terms(z)["redundancy"] == 0
    assert SMILoss(pairs=()).terms(z)["redundancy"] == 0


def test_smi_invariances() -> None:
    z = randn(2, 6, 9)
    scale, shift = torch.rand(2, 6, 1, dtype=torch.float64) + 0.1, randn(2, 6, 1, seed=4)
    features, samples = torch.randperm(9), torch.randperm(6)
    flip = torch.ones(2, 6, 1, dtype=torch.float64)
    flip[0, 2] = flip[1, 4] = flip[0, 5] = flip[1, 5] = -1  # in one view, in the other, in both
    value = SMILoss()(z)
    for same in (scale * z + shift, z[..., features], z[:, samples], z.flip(0), flip * z):
        torch.testing.assert_close(SMILoss()(same), value, rtol=1e-10, atol=0)
    assert abs(SMILoss(signed=True)(flip * z) - SMILoss(signed=True)(z)) > 1e-3


@pytest.mark.parametrize("d", [4, 10, 50])
def test_expected_information_of_unrelated_rows(d: int) -> None:
    """E I = [psi((d - 1)/2) - psi((d - 2)/2)] / 2, because rho^2 is Beta(1/2, (d - 2)/2); about 1 / (2 (d - 1))."""
    n = 600
    loss = SMILoss(off="lin", pairs=("12",), weight=1.0, eps=1e-13)
    mean = loss.terms(randn(2, n, d, seed=d))["redundancy"].item() / (n - 1)
    half = torch.tensor([(d - 1) / 2, (d - 2) / 2], dtype=torch.float64)
    want = 0.5 * (torch.digamma(half[0]) - torch.digamma(half[1])).item()
    assert mean == pytest.approx(want, rel=0.02)  # 360,000 pairs of 1,200 rows
    if d == 50:
        assert want == pytest.approx(1 / (2 * (d - 1)), rel=0.04)


def test_smi_gradient_is_orthogonal_to_what_it_cannot_see() -> None:
    z = randn(2, 6, 9).requires_grad_()
    grad = gradient(SMILoss()(z), z)
    centred = (z - z.mean(dim=2, keepdim=True)).detach()
    assert grad.sum(dim=2).abs().max() < 1e-14
    assert (grad * centred).sum(dim=2).abs().max() < 1e-14
    assert grad.norm() > 1e-2


def test_smi_costs_three_gram_products() -> None:
    """3 n^2 d multiplications, of two flops each, and twice that for the gradient."""
    n, d = 16, 512
    z = torch.randn(2, n, d, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        SMILoss()(z).backward()
    assert 0 < counter.get_total_flops() <= 3 * (2 * 3 * n * n * d)


def test_weights_of_sliced_losses_may_be_schedules() -> None:
    import reglet
    from reglet.schedules import cosine, linear

    z = torch.randn(2, 16, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = reglet.VISRegLoss(lam=linear(0.0, 1.0), shape=cosine(0, 1), slices=32).eval()
    with pytest.raises(ValueError, match="the step is unknown"):
        loss(z)
    for step, lam in ((0, 0.0), (2, 0.5), (4, 1.0)):
        reglet.set_step(loss, step, 5)
        fixed = reglet.VISRegLoss(lam=lam, shape=(0.0, 0.5, 1.0)[step // 2], slices=32).eval()
        torch.testing.assert_close(loss(z), fixed(z))
    over = reglet.SWDLoss(lam=lambda step: 2.0)
    reglet.set_step(over, 0)
    with pytest.raises(ValueError, match="lam must be a number from 0 to 1, got 2"):
        over(z)
