"""I-JEPA's masks: what is seen and what is predicted, as draws."""

import pytest
import torch

from reglet.views import BlockMasks, MaskedViews, Policy, View


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def is_block(places: torch.Tensor, columns: int) -> bool:
    rows, cols = (places // columns).unique(), (places % columns).unique()
    filled = len(rows) * len(cols) == len(places)
    return filled and len(rows) == rows[-1] - rows[0] + 1 and len(cols) == cols[-1] - cols[0] + 1


@pytest.mark.parametrize("grid", [(14, 14), (8, 8), (6, 12)])
def test_targets_are_blocks_and_the_context_is_apart_from_them(grid: tuple[int, int]) -> None:
    masks = BlockMasks(grid)
    for seed in range(10):
        m = masks.draw(5, generator(seed))
        for i in range(5):
            assert all(is_block(block, grid[1]) for block in m.targets[i])
            assert not torch.isin(m.context[i], m.targets[i]).any()
            assert (m.context[i].diff() > 0).all()
        assert m.context.shape[1] >= masks.least
        assert m.context.max() < grid[0] * grid[1]
        assert m.targets.max() < grid[0] * grid[1]


def test_sizes_are_those_of_the_paper() -> None:
    """On a fine grid, where rounding to patches does not matter."""
    grid = (64, 64)
    masks = BlockMasks(grid)
    shares, aspects = [], []
    for seed in range(60):
        block = masks.draw(1, generator(seed)).targets[0, 0]
        height, width = len((block // 64).unique()), len((block % 64).unique())
        shares.append(height * width / 64**2)
        aspects.append(height / width)
    assert 0.145 < min(shares) < 0.16
    assert 0.19 < max(shares) < 0.205
    assert 0.72 < min(aspects) < 0.85
    assert 1.35 < max(aspects) < 1.56
    assert torch.corrcoef(torch.tensor([shares, aspects]))[0, 1].abs() < 0.4, "two numbers, where the code has one"


def test_blocks_reach_every_patch() -> None:
    seen = torch.cat([BlockMasks((6, 6)).draw(8, generator(seed)).targets.flatten() for seed in range(40)])
    assert seen.unique().tolist() == list(range(36))


def test_a_draw_can_be_replayed_and_taken_apart() -> None:
    a, b = (BlockMasks((8, 8)).draw(6, generator(3)) for _ in range(2))
    other = BlockMasks((8, 8)).draw(6, generator(4))
    assert torch.equal(a.context, b.context)
    assert torch.equal(a.targets, b.targets)
    assert a.targets.shape != other.targets.shape or not torch.equal(a.targets, other.targets)
    part = a.take(slice(2, 4))
    assert torch.equal(part.context, a.context[2:4])
    assert torch.equal(part.targets, a.targets[2:4])
    assert len(part) == 2
    state = torch.get_rng_state()
    BlockMasks((8, 8)).draw(6, generator(3))
    assert torch.equal(torch.get_rng_state(), state)


def test_masked_views_are_the_views() -> None:
    policy = Policy((View(16, flip=0.5),), n_global=1)
    masked = MaskedViews(policy, BlockMasks((4, 4), targets=2, least=1))
    x = torch.rand(4, 3, 20, 20)
    draws = masked.draw(4, generator())
    assert torch.equal(masked.apply(x, draws)[0], policy.apply(x, policy.draw(4, generator()))[0])
    (some,) = (draw.take(slice(1, 3)) for draw in draws)
    assert torch.equal(masked.apply(x[1:3], [some])[0], masked.apply(x, draws)[0][1:3])
    assert masked.crops_whole_images
    assert (masked.n_global, masked.size, len(draws[0])) == (1, 16, 4)
    ask = masked.crops(draws, height=20, width=20)
    assert ask[0].size == 16
    assert masked.finish([torch.rand(4, 3, 16, 16)], draws)[0].shape == (4, 3, 16, 16)


@pytest.mark.parametrize(
    ("says", "given"),
    [
        ("grid", {"grid": (0, 4)}),
        ("targets", {"grid": (4, 4), "targets": 0}),
        ("target_scale", {"grid": (4, 4), "target_scale": (0.5, 1.5)}),
        ("target_aspect", {"grid": (4, 4), "target_aspect": (2.0, 1.0)}),
        ("context_scale", {"grid": (4, 4), "context_scale": (0.0, 1.0)}),
    ],
)
def test_bad_masks(says: str, given: dict) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        BlockMasks(**given)


def test_a_grid_that_leaves_nothing_to_see_is_refused() -> None:
    with pytest.raises(ValueError, match=r"leave fewer than 4 patches of a grid of 2 x 2"):
        BlockMasks((2, 2)).draw(3, generator())
