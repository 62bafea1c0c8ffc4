"""Directions: uniform on the sphere, drawn from no global generator, the same for the same (seed, step, rank)."""

import copy
import math

import pytest
import torch
from torch import Tensor

from reglet.losses import slices as module
from reglet.losses.slices import Slices


def drawn(slices: Slices, d: int = 5, *, part: tuple[int, int] = (0, 1)) -> Tensor:
    like = torch.zeros(1, d, dtype=torch.float64)
    return torch.cat(list(slices.at(slices.step, like, part=part).chunks(slices.count)))


def on_rank(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setattr(module, "rank", lambda: rank)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 400])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_count_and_length(count: int, dtype: torch.dtype) -> None:
    found = Slices(count, shared=True).at(0, torch.zeros(1, 7, dtype=dtype))
    assert found.count == count
    w = torch.cat(list(found.chunks(count)))
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


def test_drawing_is_reproducible_and_the_next_step_is_what_changes_it() -> None:
    slices = Slices(200, shared=False, seed=5)
    first = drawn(slices)
    assert torch.equal(first, drawn(slices))
    slices.next(torch.zeros(1, 2, 5))
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
        slices.next(torch.zeros(1, 2, 3))
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
        on_rank(monkeypatch, rank)
        assert torch.equal(drawn(Slices(count, shared=True)), whole), "unsplit, every rank has them all"
        parts.append(drawn(Slices(count, shared=True), part=(rank, world)) if rank * 128 < count else torch.zeros(0, 5))
    together = torch.cat(parts)
    assert len(together) == count
    assert {tuple(w) for w in together.tolist()} == {tuple(w) for w in whole.tolist()}


@pytest.mark.parametrize("of", [2, 3, 7])
@pytest.mark.parametrize("size", [1, 200, 4096])
def test_threads_share_all_of_them_out_in_order(of: int, size: int) -> None:
    """Four blocks, the last of them short; of seven threads three have none."""
    slices = Slices(400, shared=False)
    found = slices.at(0, torch.zeros(1, 5, dtype=torch.float64))
    shares = ([w.clone() for w in found.chunks(size, i, of)] for i in range(of))
    assert torch.equal(torch.cat([w for chunks in shares for w in chunks]), drawn(slices))


def test_own_slices_differ_between_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    every = []
    for rank in range(4):
        on_rank(monkeypatch, rank)
        torch.manual_seed(0)
        every.append(drawn(Slices(200, shared=False)))
    lines = torch.cat(every)
    assert len(torch.unique(lines, dim=0)) == 800


@pytest.mark.parametrize("count", [0, -3])
def test_at_least_one(count: int) -> None:
    with pytest.raises(ValueError, match=f"slices must be a whole number of at least 1, got {count}"):
        Slices(count, shared=True)


def test_every_direction_depends_on_all_64_bits_of_the_seed() -> None:
    """The CPU's generator takes 32 bits of what it is given."""

    def block(seed: int) -> Tensor:
        found = torch.empty(128, 3)
        module._fill(found, torch.Generator(), seed)
        return found

    first = block(0x123456789ABCDEF0)
    assert torch.equal(first, block(0x123456789ABCDEF0))
    for bit in (0, 31, 32, 47, 62, 63):
        other = block(0x123456789ABCDEF0 ^ (1 << bit))
        assert not (other == first).any(), f"bit {bit} changes nothing, or not all"
    assert max(module._mix(5, step, 0) for step in range(64)) >= 1 << 63
    assert abs(torch.cat([block(module._mix(seed)) for seed in range(100)]).double().var() - 2) < 0.05
