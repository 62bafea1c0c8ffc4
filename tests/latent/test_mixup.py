import pytest
import torch
from scipy import stats

from reglet.latent import Mix, Mixup
from reglet.types import Transform


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_equals_a_loop_over_samples() -> None:
    x, y = torch.randn(5, 3, 4, 6), torch.tensor([2, 0, 1, 1, 0])
    p = Mixup(alpha=0.7).draw(5, seeded())
    mixed, soft = Mixup().mix(x, y, p, num_classes=3)
    for i in range(5):
        j = int(p.partner[i])
        torch.testing.assert_close(mixed[i], p.lam * x[i] + (1 - p.lam) * x[j])
        expected = torch.zeros(3)
        expected[y[i]] += p.lam
        expected[y[j]] += 1 - p.lam
        torch.testing.assert_close(soft[i], expected)


def test_soft_labels_give_the_papers_loss() -> None:
    logits, y = torch.randn(6, 4), torch.randint(4, (6,))
    p = Mixup().draw(6, seeded(1))
    _, soft = Mixup().mix(torch.randn(6, 2), y, p, num_classes=4)
    ce = torch.nn.functional.cross_entropy
    torch.testing.assert_close(ce(logits, soft), p.lam * ce(logits, y) + (1 - p.lam) * ce(logits, y[p.partner]))
    torch.testing.assert_close(soft.sum(1), torch.ones(6))


def test_labels_that_are_soft_already_are_mixed_again() -> None:
    y = torch.rand(6, 4).softmax(1)
    p = Mixup().draw(6, seeded(1))
    _, soft = Mixup().mix(torch.randn(6, 2), y, p, num_classes=4)
    torch.testing.assert_close(soft, p.lam * y + (1 - p.lam) * y[p.partner])


def test_same_draw_same_result_and_replay() -> None:
    mixup, x = Mixup(), torch.randn(8, 5)
    p, q = mixup.draw(8, seeded(3)), mixup.draw(8, seeded(3))
    assert p.lam == q.lam
    assert torch.equal(p.partner, q.partner)
    assert torch.equal(mixup.apply(x, p), mixup.apply(x, p))
    r = mixup.draw(8, seeded(4))
    assert r.lam != p.lam
    assert sorted(r.partner.tolist()) == list(range(8))


def test_without_a_generator_torchs_seed_decides() -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append(Mixup().draw(3).lam)
    assert draws[0] == draws[1] != Mixup().draw(3).lam


@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.0])
def test_lam_is_beta_distributed(alpha: float) -> None:
    g = seeded()
    lams = [Mixup(alpha=alpha).draw(1, g).lam for _ in range(2000)]
    # A fixed seed, so this is no coin toss; a wrong alpha gives p below 1e-20.
    assert stats.kstest(lams, stats.beta(alpha, alpha).cdf).pvalue > 0.01


def test_the_ends() -> None:
    x = torch.randn(3, 2)
    turn = torch.tensor([1, 2, 0])
    assert torch.equal(Mixup().apply(x, Mix(1.0, turn)), x)
    assert torch.equal(Mixup().apply(x, Mix(0.0, turn)), x[turn])


def test_gradient_reaches_both_samples() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    Mixup().apply(x, Mix(0.25, torch.tensor([1, 0])))[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([[0.25] * 3, [0.75] * 3]))


def test_is_a_transform() -> None:
    assert isinstance(Mixup(), Transform)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="alpha must be a positive number, got 0"):
        Mixup(alpha=0.0)
    with pytest.raises(ValueError, match="alpha must be a positive number, got nan"):
        Mixup(alpha=float("nan"))
    p = Mixup().draw(4, seeded())
    with pytest.raises(ValueError, match="batch of 4, got one of 5"):
        Mixup().apply(torch.randn(5, 2), p)
    with pytest.raises(ValueError, match=r"4 class numbers from 0 to 2.* got values 0 to 3"):
        Mixup().mix(torch.randn(4, 2), torch.arange(4), p, num_classes=3)
    with pytest.raises(ValueError, match=r"probabilities \(4, 3\); got torch.float32 of shape \(4, 2\)"):
        Mixup().mix(torch.randn(4, 2), torch.rand(4, 2), p, num_classes=3)
