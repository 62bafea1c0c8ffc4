"""What the sweep of tests/contracts.py does not see of TiCo: it remembers, and what is computed again is the same."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from reglet import TiCoLoss


def views(seed: int = 0) -> torch.Tensor:
    return torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_checkpointed_call_is_repeated_with_the_same_covariance() -> None:
    plain, kept = TiCoLoss(), TiCoLoss()
    for seed in range(3):
        a, b = views(seed).requires_grad_(), views(seed).requires_grad_()
        plain(a).backward()
        checkpoint(kept, b, use_reentrant=False).backward()
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(kept.get_extra_state(), plain.get_extra_state())


def test_eval_mode_leaves_the_covariance_as_it_is() -> None:
    loss = TiCoLoss()
    loss(views())
    before = loss.get_extra_state().clone()
    loss.eval()
    first = loss(views(1))
    assert torch.equal(loss(views(1)), first)
    assert torch.equal(loss.get_extra_state(), before)


def test_embeddings_of_another_width_are_refused() -> None:
    loss = TiCoLoss()
    loss(views())
    with pytest.raises(ValueError, match="of 5 features, got 4"):
        loss(views()[..., :4])
