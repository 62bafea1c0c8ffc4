"""What SER draws, and the relative element of two views."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet.groups import D4, Element, Symmetry, act, align, relative, resize, resize_tokens, transform

EXACT = {"rtol": 0.0, "atol": 1e-12}  # of values of order 1 in double precision


def element(k: int, f: int, grid: tuple[int, int]) -> Element:
    return Element(D4(torch.tensor([k]), torch.tensor([bool(f)])), grid)


def tokens(x: Tensor) -> Tensor:
    return x.flatten(2).transpose(1, 2)


@pytest.mark.parametrize("grid", [(4, 4), (3, 5)])
def test_relative_element_of_all_64_pairs_is_exact(grid: tuple[int, int]) -> None:
    x = torch.randn(1, 2, *grid)
    for k1, f1, k2, f2 in itertools.product(range(4), range(2), range(4), range(2)):
        first, second = element(k1, f1, grid), element(k2, f2, grid)
        d = relative(first, second)
        assert (d.turn.item(), d.flip.item()) == ((k2 - k1 if f1 == f2 else k2 + k1) % 4, f1 != f2)
        seen = transform(x, first, patch=1), transform(x, second, patch=1)
        assert torch.equal(act(seen[0], d), seen[1])
        assert torch.equal(align(tokens(seen[0]), d, grid=first.shape, to=second.shape), tokens(seen[1]))


def test_relative_element_with_resizes() -> None:
    """What survives one resize is aligned exactly: images that view 1 has not resized."""
    x = torch.randn(1, 2, 4, 6, dtype=torch.float64)
    for k1, f1, k2, f2 in itertools.product(range(4), range(2), range(4), range(2)):
        first, second = element(k1, f1, (4, 6)), element(k2, f2, (5, 3))
        y1, y2 = transform(x, first, patch=1), transform(x, second, patch=1)
        moved = align(tokens(y1), relative(first, second), grid=first.shape, to=second.shape)
        torch.testing.assert_close(moved, tokens(y2), **EXACT)


def test_resize_to_the_same_size_is_the_identity_and_a_round_trip_is_not() -> None:
    x = torch.randn(2, 3, 14, 14, dtype=torch.float64)
    assert resize(x, (14, 14)) is x
    same = F.interpolate(x, size=(14, 14), mode="bicubic", align_corners=False)
    torch.testing.assert_close(same, x, **EXACT)
    back = resize(resize(x, (18, 18)), (14, 14))
    assert (back - x).abs().max() > 0.01
    assert (resize(resize(x, (18, 18)), (10, 10)) - resize(x, (10, 10))).abs().max() > 0.01


def test_resize_commutes_with_d4_and_with_pointwise_maps() -> None:
    x = torch.randn(8, 3, 6, 6, dtype=torch.float64)
    g = D4.every()
    torch.testing.assert_close(resize(act(x, g), (8, 8)), act(resize(x, (8, 8)), g), **EXACT)
    for k in range(4):
        turned = resize(torch.rot90(x, k, (2, 3)), (5, 8) if k % 2 == 0 else (8, 5))
        torch.testing.assert_close(turned, torch.rot90(resize(x, (5, 8)), k, (2, 3)), **EXACT)
    pointwise = nn.Conv2d(3, 4, 1).double()  # with a bias: the weights of a resize sum to 1
    torch.testing.assert_close(resize(pointwise(x), (5, 8)), pointwise(resize(x, (5, 8))), **EXACT)


def test_resized_tokens_are_the_resized_map() -> None:
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    assert torch.equal(resize_tokens(tokens(x), grid=(4, 6), to=(3, 7)), tokens(resize(x, (3, 7))))


def test_grids_are_drawn_as_in_the_paper() -> None:
    group, generator = Symmetry(), torch.Generator().manual_seed(0)
    grids = torch.tensor([group.draw(1, generator).grid for _ in range(4000)])
    assert grids.min() == 10
    assert grids.max() == 18
    area = grids.double().prod(1)
    # 4000 draws of a standard deviation of 34 have a mean to within 0.54: four of these
    assert abs(area.mean() - 195.7) < 2.2
    small = Symmetry(grid=(8, 8), patch=4)
    sides = {side for _ in range(1000) for side in small.draw(1, generator).grid}
    assert {6, 7, 8, 9, 10} <= sides <= {6, 7, 8, 9, 10, 11}  # 8 sqrt(0.7 * 3 / 4) = 5.8 to 8 sqrt(1.3 * 4 / 3) = 10.5


def test_every_relative_element_occurs_unless_complemented() -> None:
    generator = torch.Generator().manual_seed(0)

    def seen(group: Symmetry) -> list[set[int]]:
        return [set(relative(*group.draw_pair(16, generator)).number.tolist()) for _ in range(60)]

    assert set().union(*seen(Symmetry())) == set(range(8))
    assert set().union(*seen(Symmetry(area=None))) == set(range(8))
    released = seen(Symmetry(complement=True))
    assert all(len(of_batch) == 1 for of_batch in released)
    assert set().union(*released) == {4, 5, 6, 7}


def test_a_batch_shares_its_parity_where_grids_may_not_be_square() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        e = Symmetry().draw(32, generator)
        assert len(set((e.d4.turn % 2).tolist())) == 1
        assert len(set(e.d4.turn.tolist())) == 2
        assert len(set(e.d4.flip.tolist())) == 2
    free = Symmetry(area=None).draw(32, generator)
    assert len(set(free.d4.turn.tolist())) == 4
    assert free.grid == (14, 14)


@pytest.mark.parametrize("complement", [False, True])
def test_what_is_left_out_does_not_occur(complement: bool) -> None:
    for _ in range(10):
        for e in Symmetry(turns=False, complement=complement).draw_pair(16):
            assert not e.d4.turn.any()
        for e in Symmetry(flips=False, complement=complement).draw_pair(16):
            assert not e.d4.flip.any()
        for e in Symmetry(area=None, complement=complement).draw_pair(16):
            assert e.grid == (14, 14)


def test_same_draw_same_result() -> None:
    group, x = Symmetry(grid=(4, 4), patch=2), torch.randn(5, 3, 8, 8)
    one, two = (group.draw(5, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one.d4.number, two.d4.number)
    assert torch.equal(group.apply(x, one), group.apply(x, two))
    h, w = one.shape
    assert group.apply(x, one).shape == (5, 3, 2 * h, 2 * w)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="33 x 32 are not made of patches of 4 x 4"):
        Symmetry().fitted((33, 32), patch=4)
    with pytest.raises(ValueError, match=r"area must be a range \(a, b\) with 0 < a <= b, got \(1.3, 0.7\)"):
        Symmetry(area=(1.3, 0.7))
    with pytest.raises(ValueError, match="grid must be a whole number of at least 1, got 0"):
        Symmetry(grid=(0, 4))
    with pytest.raises(ValueError, match="size must be a whole number of at least 1, got 0"):
        resize(torch.zeros(1, 1, 2, 2), (0, 3))
