"""Directions: uniform on the sphere, drawn from no global generator, the same for the same (seed, step, rank)."""

import copy
import math

import pytest
import torch
from torch import Tensor

from reglet.losses import slices as module
from reglet.losses.slices import Slices

LIKE = torch.zeros((), dtype=torch.float64)


def drawn(slices: Slices, d: int = 5, *, split: bool = False) -> Tensor:
    return torch.cat(list(slices.chunks(d, like=LIKE, split=split, size=slices.count)))


def on_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    monkeypatch.setattr(module, "rank", lambda: rank)
    monkeypatch.setattr(module, "world_size", lambda: world)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 400])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_count_and_length(count: int, dtype: torch.dtype) -> None:
    w = torch.cat(list(Slices(count, shared=True).chunks(7, like=LIKE.to(dtype), split=False, size=count)))
    assert w.shape == (count, 7)
    assert w.dtype == dtype
    torch.testing.assert_close(w.norm(dim=1), torch.ones(count, dtype=dtype), rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_uniform_on_the_sphere() -> None:
    """mean w = 0 and mean w w^T = I / d, to five standard errors."""
    count, d = 20_000, 4
    w = drawn(Slices(count, shared=True), d)
    assert w.mean(dim=0).abs().max() < 5 / math.sqrt(d * count)
    assert (w.T @ w / count - torch.eye(d) / d).abs().max() < 5 / math.sqrt(3 * d * count) * 1.5


def test_a_prefix_of_more_is_fewer() -> None:
    many = drawn(Slices(600, shared=True, seed=3))
    for count in (1, 128, 129, 260):
        assert torch.equal(drawn(Slices(count, shared=True, seed=3)), many[:count])


def test_drawing_is_reproducible_and_advance_is_what_changes_it() -> None:
    slices = Slices(200, shared=False, seed=5)
    first = drawn(slices)
    assert torch.equal(first, drawn(slices))
    slices.advance()
    second = drawn(slices)
    assert slices.step == 1
    assert not torch.isin(second, first).any()
    resumed = Slices(200, shared=False, seed=5)
    resumed.load_state_dict(slices.state_dict())
    assert resumed.step == 1
    assert torch.equal(drawn(resumed), second)
    assert torch.equal(drawn(copy.deepcopy(slices)), second)
    assert not torch.isin(drawn(Slices(200, shared=False, seed=6)), first).any()


def test_no_two_directions_of_a_run_are_equal() -> None:
    slices = Slices(260, shared=True)
    seen = []
    for _ in range(20):
        seen.append(drawn(slices, 3))
        slices.advance()
    every = torch.cat(seen)
    assert len(torch.unique(every, dim=0)) == len(every)


def test_the_global_generator_plays_no_part() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = drawn(Slices(200, shared=False))
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(1)
    assert torch.equal(first, drawn(Slices(200, shared=False)))


@pytest.mark.parametrize(("count", "world"), [(400, 2), (400, 4), (128, 4), (1, 2), (260, 3)])
def test_shared_slices_are_split_into_a_partition(monkeypatch: pytest.MonkeyPatch, count: int, world: int) -> None:
    whole = drawn(Slices(count, shared=True))
    parts = []
    for rank in range(world):
        on_rank(monkeypatch, rank, world)
        assert torch.equal(drawn(Slices(count, shared=True)), whole), "unsplit, every rank has them all"
        parts += list(Slices(count, shared=True).chunks(5, like=LIKE, split=True, size=count))
    together = torch.cat(parts)
    assert len(together) == count
    assert {tuple(w) for w in together.tolist()} == {tuple(w) for w in whole.tolist()}


@pytest.mark.parametrize("of", [2, 3, 7])
@pytest.mark.parametrize("size", [1, 200, 4096])
def test_threads_share_all_of_them_out_in_order(of: int, size: int) -> None:
    """Four blocks, the last of them short; of seven threads three have none."""
    slices = Slices(400, shared=False)
    shares = (
        [w.clone() for w in slices.chunks(5, like=LIKE, split=False, size=size, share=(i, of))] for i in range(of)
    )
    assert torch.equal(torch.cat([w for chunks in shares for w in chunks]), drawn(slices))


def test_own_slices_differ_between_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    every = []
    for rank in range(4):
        on_rank(monkeypatch, rank, 4)
        torch.manual_seed(0)
        every.append(drawn(Slices(200, shared=False)))
    lines = torch.cat(every)
    assert len(torch.unique(lines, dim=0)) == 800


@pytest.mark.parametrize("count", [0, -3])
def test_at_least_one(count: int) -> None:
    with pytest.raises(ValueError, match=f"slices must be at least 1, got {count}"):
        Slices(count, shared=True)
