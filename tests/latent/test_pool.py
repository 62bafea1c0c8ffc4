import pytest
import torch

from reglet.latent import RandomPool
from reglet.types import Transform


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_equals_a_loop_over_subsets() -> None:
    z, pool = torch.randn(6, 4, dtype=torch.float64), RandomPool(3)
    p = pool.draw(6, seeded())
    want = torch.stack([sum(z[j] for j in row) / 3 for row in p.tolist()])
    torch.testing.assert_close(pool.apply(z, p), want)


def test_everyone_but_oneself() -> None:
    z, pool = torch.randn(5, 3), RandomPool(4, exclude_self=True)
    torch.testing.assert_close(pool.apply(z, pool.draw(5, seeded())), (z.sum(0) - z) / 4)


def test_the_whole_batch_is_one_constant() -> None:
    z, pool = torch.randn(5, 3), RandomPool(5)
    torch.testing.assert_close(pool(z, z), z.mean(0).expand(5, 3))


@pytest.mark.parametrize("exclude_self", [False, True])
def test_subsets_are_uniform_and_without_repetition(exclude_self: bool) -> None:
    pool, g, n = RandomPool(2, exclude_self=exclude_self), seeded(), 4
    drawn = torch.stack([pool.draw(n, g) for _ in range(3000)])
    assert (drawn[..., 0] != drawn[..., 1]).all()
    counts = torch.stack([(drawn[:, i] == j).sum() for i in range(n) for j in range(n)]).view(n, n)
    if exclude_self:
        assert not counts.diagonal().any()
    share = 2 / (n - exclude_self)
    kept = counts[~torch.eye(n, dtype=torch.bool)] if exclude_self else counts.flatten()
    # five standard deviations of a binomial, at a fixed seed
    assert ((kept - 3000 * share).abs() < 5 * (3000 * share * (1 - share)) ** 0.5 + 1e-9).all()


def test_same_draw_same_result_and_a_new_one_each_time() -> None:
    pool = RandomPool(2)
    assert torch.equal(pool.draw(9, seeded(1)), pool.draw(9, seeded(1)))
    z = torch.randn(9, 3)
    assert not torch.equal(pool(z, z), pool(z, z))
    assert isinstance(pool, Transform)


def test_a_pool_above_the_batch_takes_everyone() -> None:
    z = torch.randn(2, 3)
    with pytest.warns(UserWarning, match="pool size 3 is above the 2 samples there are to pool"):
        out = RandomPool(3)(z, z)
    torch.testing.assert_close(out, z.mean(0).expand(2, 3))
    with pytest.warns(UserWarning, match="above the 1 samples"):
        out = RandomPool(3, exclude_self=True)(z, z)
    torch.testing.assert_close(out, z.flip(0))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="size must be a whole number of at least 1, got 0"):
        RandomPool(0)
    with pytest.raises(ValueError, match="batch of 1 leaves nothing to pool"):
        RandomPool(1, exclude_self=True).draw(1)
    with pytest.raises(ValueError, match="batch of 4, got one of 5"):
        RandomPool(2).apply(torch.randn(5, 2), RandomPool(2).draw(4))
