"""Which tokens are looked at: how many, reproducibly, and without touching the global random numbers."""

import pytest
import torch

from reglet.attach.sampling import REMEMBERED, Sampler


def sampler(rho: float = 0.2, sampling: str = "shared", seed: int = 0) -> Sampler:
    return Sampler(rho, sampling=sampling, seed=seed)  # type: ignore[arg-type]


COUNTS = [(0.2, 1024, 205), (0.2, 64, 13), (0.2, 5, 3), (0.1, 30, 3), (1.0, 7, 7), (1, 7, 7), (5, 7, 5)]


@pytest.mark.parametrize(("rho", "tokens", "n"), COUNTS)
def test_count(rho: float, tokens: int, n: int) -> None:
    assert sampler(rho).count(tokens) == n


@pytest.mark.parametrize("rho", [0, 0.0, -0.1, 1.5, 2, -3, float("nan")])
def test_rho_outside_its_range(rho: float) -> None:
    with pytest.raises(ValueError, match="ratio in"):
        sampler(rho)


def test_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="rho=50 tokens were asked for, and there are 49"):
        sampler(50).count(49)
    with pytest.raises(ValueError, match="at least 3"):
        sampler(0.5).count(2)


def choose(s: Sampler, b: int = 2, grid: tuple[int, ...] = (4, 4)) -> torch.Tensor:
    return s.choose(torch.randn(b, 16, 3), grid, grid)[0]


@pytest.mark.parametrize("sampling", ["shared", "per_sample", "salient"])
def test_places_are_a_function_of_seed_and_step(sampling: str) -> None:
    x = torch.randn(3, 64, 5)
    runs = []
    for _ in range(2):
        s, seen = sampler(sampling=sampling), []
        for _ in range(3):
            seen.append(s.choose(x, (8, 8), (8, 8))[0])
            s.advance()
        runs.append(seen)
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    assert not torch.equal(runs[0][0], runs[0][1])
    assert not torch.equal(runs[0][0], sampler(sampling=sampling, seed=1).choose(x, (8, 8), (8, 8))[0])


def test_the_same_places_for_all_blocks_of_a_size_within_a_step() -> None:
    s = sampler()
    assert choose(s) is choose(s)


def test_a_resumed_run_goes_on_with_the_places_it_would_have_had() -> None:
    s = sampler()
    choose(s)
    s.advance()
    s.advance()
    resumed = sampler()
    resumed.load_state_dict(s.state_dict())
    assert torch.equal(choose(resumed), choose(s))


@pytest.mark.parametrize("sampling", ["shared", "per_sample", "salient"])
def test_no_global_random_numbers(sampling: str) -> None:
    x = torch.randn(2, 16, 3)
    before = torch.get_rng_state()
    s = sampler(sampling=sampling)
    s.choose(x, (4, 4), (4, 4))
    s.advance()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("sampling", ["shared", "per_sample", "salient"])
def test_no_place_twice_and_x_at_those_places(sampling: str) -> None:
    x = torch.randn(3, 40, 2)
    places, rows = sampler(0.3, sampling).choose(x, (40,), (40,))
    assert len(places) == (1 if sampling == "shared" else 3)
    for i in range(3):
        mine = places[i % len(places)]
        assert len(set(mine.tolist())) == len(mine) == 12
        assert torch.equal(rows[i], x[i, mine])


def test_places_per_sample_differ() -> None:
    places = sampler(0.3, "per_sample").choose(torch.randn(3, 40, 2), (40,), (40,))[0]
    assert not torch.equal(places[0], places[1])


def test_salient_keeps_the_largest_of_three_times_as_many() -> None:
    x = torch.randn(3, 40, 2)
    candidates = sampler(0.9).choose(x, (40,), (40,))[0]  # the same permutation, 36 = 3 * 12 long
    places = sampler(0.3, "salient").choose(x, (40,), (40,))[0]
    for i in range(3):
        best = sorted(candidates[0].tolist(), key=lambda t: -x[i, t].mean().item())[:12]
        assert set(places[i].tolist()) == set(best)


def test_each_place_is_equally_likely() -> None:
    s, counts = sampler(0.25), torch.zeros(16)
    for _ in range(2000):
        counts[choose(s)[0]] += 1
        s.advance()
    assert counts.sum() == 2000 * 4
    assert (counts / 2000 - 0.25).abs().max() < 5 * (0.25 * 0.75 / 2000) ** 0.5


def test_windows_are_picked_before_they_are_pooled() -> None:
    x = torch.randn(2, 36, 3)
    places, rows = sampler(0.5).choose(x, (6, 6), (3, 3))
    pooled = torch.nn.functional.avg_pool2d(x.mT.unflatten(2, (6, 6)), 2).flatten(2).mT
    torch.testing.assert_close(rows, pooled[:, places[0]])
    places, rows = sampler(0.5).choose(x, (6, 6), (4, 4))  # uneven windows
    pooled = torch.nn.functional.adaptive_avg_pool2d(x.mT.unflatten(2, (6, 6)), 4).flatten(2).mT
    torch.testing.assert_close(rows, pooled[:, places[0]])


def test_sizes_without_end_are_forgotten() -> None:
    s = sampler()
    for size in range(3, 3 + 2 * REMEMBERED):
        s.choose(torch.randn(1, size, 1), (size,), (size,))
    assert len(s._places) == REMEMBERED
