"""Which images have aligned views, and what is still drawn for each view."""

import pytest
import torch
from tests.methods.equivariant_nets import SHARE, N, batch, policy

from reglet.methods.equivariant_views import GEOMETRY, AlignedViews, part_of, require_aligned, require_one_of


def test_partition_counts_are_rounded() -> None:
    assert [part_of(256, r) for r in (0.0, 0.005, 0.01, 0.02)] == [0, 1, 3, 5]
    assert part_of(N, SHARE) == 3


@pytest.mark.parametrize("crop", ["shared", "none"])
def test_geometry_is_shared_by_pairs_and_colours_are_not(crop: str) -> None:
    plain = policy(local=4).draw(N, torch.Generator().manual_seed(0))
    draws = AlignedViews(policy(local=4), fraction=SHARE, crop=crop).draw(N, torch.Generator().manual_seed(0))
    for i in (0, 2, 4):
        a, b = draws[i : i + 2]
        for name in GEOMETRY:
            assert torch.equal(getattr(a, name)[5:], getattr(b, name)[5:])
        assert not torch.equal(a.crop[:5], b.crop[:5])
        assert not torch.equal(a.factors[5:], b.factors[5:])
        expected = plain[i].crop[5:] if crop == "shared" else torch.tensor([0.4999, 0.4999, 1, 1]).expand(3, 4)
        assert torch.equal(a.crop[5:], expected)
    assert torch.equal(draws[0].crop[5:], draws[2].crop[5:]) == (crop == "none")
    for mine, given in zip(draws, plain, strict=True):
        for name in ("jitter", "factors", "order", "gray", "sigma", "solarize"):
            assert torch.equal(getattr(mine, name), getattr(given, name))
        for name in GEOMETRY:
            assert torch.equal(getattr(mine, name)[:5], getattr(given, name)[:5])


def test_without_crop_the_whole_image_is_seen() -> None:
    made = AlignedViews(policy(), fraction=SHARE, crop="none")
    boxes = made.policy.views[0].boxes(made.draw(N)[0], height=20, width=24)
    assert boxes[5:].tolist() == [[0, 0, 20, 24]] * 3


def test_every_rank_has_its_own_last_images() -> None:
    made = AlignedViews(policy(), fraction=SHARE, ranks=2)
    a, b = made.draw(2 * N)
    same = (a.crop == b.crop).all(1)
    assert same.tolist() == ([False] * 5 + [True] * 3) * 2
    with pytest.raises(ValueError, match="a batch of 9 cannot be cut into 2 equal parts"):
        made.draw(9)


def test_misaligned_views_are_found() -> None:
    draws = batch().draws
    require_aligned(draws, last=3)
    with pytest.raises(ValueError, match="of the last 4 images views 0 and 1 should differ in colours only"):
        require_aligned(draws, last=4)
    with pytest.raises(ValueError, match="their number is even, got 3"):
        require_aligned(draws + draws[:1], last=3)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"from 0 to below 1, got 1.0"):
        AlignedViews(policy(), fraction=1.0)
    with pytest.raises(ValueError, match="crop is one of 'shared', 'none', got 'half'"):
        require_one_of("crop", "half", ("shared", "none"))
    with pytest.raises(ValueError, match=r"pairs of one size, got views of \[16, 16, 8\] px"):
        AlignedViews(policy(local=1), fraction=0.1)
