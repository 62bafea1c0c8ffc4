import pytest
import torch
import torch.nn.functional as F

from reglet.latent import Criterion
from reglet.tails import BalancedSoftmax, LogitAdjustment

COUNTS = [500, 60, 7]


def logits(n: int = 6) -> torch.Tensor:
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_balanced_softmax_is_the_papers_equation() -> None:
    """p_c = n_c exp(l_c) / sum_k n_k exp(l_k)"""
    rows, y = logits(), torch.tensor([0, 1, 2, 2, 0, 1])
    n = torch.tensor(COUNTS, dtype=torch.float64)
    p = n * rows.exp() / (n * rows.exp()).sum(1, keepdim=True)
    want = -p[torch.arange(6), y].log().mean()
    torch.testing.assert_close(BalancedSoftmax(COUNTS)(rows, y), want, rtol=1e-6, atol=0)  # float32 log counts


@pytest.mark.parametrize("tau", [0.0, 0.5, 2.0])
def test_logit_adjustment_is_the_papers_equation(tau: float) -> None:
    """log(1 + sum_{k != y} (pi_k / pi_y)^tau exp(l_k - l_y))"""
    rows, y = logits(), torch.tensor([0, 1, 2, 2, 0, 1])
    pi = torch.tensor(COUNTS, dtype=torch.float64) / sum(COUNTS)
    each = []
    for row, label in zip(rows, y.tolist(), strict=True):
        others = [k for k in range(3) if k != label]
        each.append((1 + sum((pi[k] / pi[label]) ** tau * (row[k] - row[label]).exp() for k in others)).log())
    torch.testing.assert_close(LogitAdjustment(COUNTS, tau=tau)(rows, y), torch.stack(each).mean(), rtol=1e-6, atol=0)


def test_soft_labels_and_plain_cross_entropy_at_equal_counts() -> None:
    rows, y = logits(), torch.rand(6, 3).double().softmax(1)
    torch.testing.assert_close(LogitAdjustment([5, 5, 5])(rows, y), F.cross_entropy(rows, y))


def test_post_hoc_undoes_the_prior() -> None:
    """A model that says the prior whatever it sees prefers no class."""
    adjustment = LogitAdjustment(COUNTS, tau=1.0)
    prior = torch.tensor(COUNTS, dtype=torch.float64).log().expand(2, 3)
    flat = adjustment.post_hoc(prior)
    torch.testing.assert_close(flat, flat[:, :1].expand(2, 3), rtol=1e-6, atol=0)
    torch.testing.assert_close(adjustment.post_hoc(adjustment.adjust(logits())), logits())


def test_gradcheck_and_half_precision() -> None:
    y = torch.tensor([0, 1, 2, 2, 0, 1])
    assert torch.autograd.gradcheck(lambda rows: BalancedSoftmax(COUNTS)(rows, y), logits().requires_grad_())
    half = logits().to(torch.bfloat16)
    assert BalancedSoftmax(COUNTS)(half, y).dtype == torch.float32
    torch.testing.assert_close(BalancedSoftmax(COUNTS)(half, y), BalancedSoftmax(COUNTS)(half.float(), y))


def test_is_a_criterion_and_moves_with_its_module() -> None:
    assert isinstance(BalancedSoftmax(COUNTS), Criterion)
    assert BalancedSoftmax(COUNTS).to("meta").log_prior.is_meta


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"each with some; got \[5\.0, 0\.0\]"):
        BalancedSoftmax([5, 0])
    with pytest.raises(ValueError, match=r"at least two classes.*got \[5\.0\]"):
        LogitAdjustment([5])
    with pytest.raises(ValueError, match="3 classes without any"):
        LogitAdjustment([5] * 30 + [0] * 3)
    with pytest.raises(ValueError, match="counts are of 3 classes, logits of 4"):
        BalancedSoftmax(COUNTS)(torch.zeros(2, 4), torch.tensor([0, 1]))
