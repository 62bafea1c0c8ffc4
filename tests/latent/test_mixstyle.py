import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import reglet
from reglet.latent import MixStyle, Styles
from reglet.types import Transform


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def maps(n: int = 5, *, seed: int = 0) -> Tensor:
    """Every image and channel with a mean and a deviation of its own."""
    g = seeded(seed)
    x = torch.randn(n, 3, 4, 6, generator=g, dtype=torch.float64)
    return x * (0.5 + torch.rand(n, 3, 1, 1, generator=g)) + torch.randn(n, 3, 1, 1, generator=g)


def statistics(x: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    flat = x.flatten(2)
    mu = flat.sum(2) / flat.shape[2]
    s = (((flat - mu[..., None]) ** 2).sum(2) / (flat.shape[2] - 1) + eps).sqrt()
    return mu, s


def test_equals_the_formula_image_by_image() -> None:
    x, style = maps(), MixStyle(prob=1.0)
    p = style.draw(5, seeded())
    mu, s = statistics(x)
    for i, j in enumerate(p.partner.tolist()):
        lam = float(p.lam[i])
        for c in range(3):
            content = (x[i, c] - mu[i, c]) / s[i, c]
            want = content * (lam * s[i, c] + (1 - lam) * s[j, c]) + lam * mu[i, c] + (1 - lam) * mu[j, c]
            torch.testing.assert_close(style.apply(x, p)[i, c], want)


def test_content_stays_and_style_is_the_partners() -> None:
    x, partner = maps(), torch.tensor([1, 2, 3, 4, 0])
    out = MixStyle(eps=1e-12).apply(x, Styles(torch.zeros(5), partner))
    (mu, s), (new_mu, new_s) = statistics(x, 0), statistics(out, 0)
    torch.testing.assert_close(new_mu, mu[partner])
    torch.testing.assert_close(new_s, s[partner])
    whole = (..., None, None)
    torch.testing.assert_close((out - new_mu[whole]) / new_s[whole], (x - mu[whole]) / s[whole])


def test_no_gradient_through_the_statistics() -> None:
    x, style = maps().requires_grad_(), MixStyle(prob=1.0)
    p = style.draw(5, seeded())
    weight = torch.randn_like(x)
    (grad,) = torch.autograd.grad((style.apply(x, p) * weight).sum(), x)
    _, s = statistics(x.detach())
    lam = p.lam[:, None]
    scale = (lam * s + (1 - lam) * s[p.partner]) / s
    torch.testing.assert_close(grad, weight * scale[..., None, None])


def test_distributions() -> None:
    style, g = MixStyle(prob=0.5, alpha=0.4), seeded()
    draws = [style.draw(4, g) for _ in range(1000)]
    changed = [p for p in draws if not bool((p.lam == 1).all())]
    assert 420 < len(changed) < 580  # five standard deviations, at a fixed seed
    lams = torch.cat([p.lam for p in changed]).numpy()
    assert stats.kstest(lams, stats.beta(0.4, 0.4).cdf).pvalue > 0.01  # at a fixed seed: no coin toss
    always = MixStyle(prob=1.0, alpha=0.4)
    again = [always.draw(4, g) for g in [seeded()] for _ in range(1000)]
    assert all(torch.equal(p.partner, q.partner) for p, q in zip(draws, again, strict=True))


@pytest.mark.parametrize("n", [6, 7])
def test_crossdomain_swaps_the_halves(n: int) -> None:
    style, g = MixStyle(partner="crossdomain"), seeded()
    seen = set()
    for _ in range(50):
        partner = style.draw(n, g).partner
        assert sorted(partner.tolist()) == list(range(n))
        assert (partner[: n // 2] >= n // 2).all()
        assert (partner[n - n // 2 :] < n // 2).all()
        seen.add(tuple(partner.tolist()))
    assert len(seen) > 10


def test_through_alter_in_training_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    x = torch.randn(5, 3, 8, 8)
    before = model(x)
    altered = reglet.alter(model, "0", MixStyle(prob=1.0))
    assert not torch.allclose(model(x), before)
    model.eval()
    assert torch.equal(model(x), before)
    model.train()
    altered.remove()
    assert torch.equal(model(x), before)


def test_any_layout_of_places_and_half_precision() -> None:
    x = maps()
    style = MixStyle(prob=1.0)
    p = style.draw(5, seeded())
    torch.testing.assert_close(style.apply(x.flatten(2), p), style.apply(x, p).flatten(2))
    torch.testing.assert_close(style.apply(x[:, :, None], p)[:, :, 0], style.apply(x, p))
    large = (300 * x).to(torch.float16)  # whose squares are beyond float16
    assert style.apply(large, p).dtype == torch.float16
    assert torch.isfinite(style.apply(large, p)).all()


def test_is_a_transform() -> None:
    assert isinstance(MixStyle(), Transform)
    style = MixStyle()
    assert torch.equal(style.draw(4, seeded(3)).lam, style.draw(4, seeded(3)).lam)


def test_a_flat_image_stays_finite() -> None:
    x = torch.ones(3, 2, 4, 4, requires_grad=True)
    out = MixStyle(prob=1.0)(x)
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(x.grad).all()


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="alpha must be a positive number, got 0"):
        MixStyle(alpha=0.0)
    with pytest.raises(ValueError, match=r"prob must be a probability, in \[0, 1\], got 1\.5"):
        MixStyle(prob=1.5)
    with pytest.raises(ValueError, match="batch of 4, got one of 5"):
        MixStyle().apply(maps(), MixStyle().draw(4))
    with pytest.raises(ValueError, match=r"at least two places in each channel of \(n, c, ...\), got \(4, 3, 1, 1\)"):
        MixStyle()(torch.zeros(4, 3, 1, 1))


def test_large_values_keep_their_style() -> None:
    """Squares of 1e30 overflow float32; the style of an image does not depend on the unit."""
    x, p = maps().float(), MixStyle(prob=1.0).draw(5, torch.Generator().manual_seed(0))
    want = MixStyle(prob=1.0).apply(x, p)
    torch.testing.assert_close(MixStyle(prob=1.0).apply(2.0**100 * x, p) / 2.0**100, want, rtol=1e-4, atol=1e-4)
