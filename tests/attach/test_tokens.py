"""Layouts, windows and picking, against the slow way of saying the same."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reglet.attach.tokens import (
    Layout,
    average_onto,
    channels_first,
    common_grids,
    has_equal_windows,
    take,
    tokens_at,
    windows,
)

SHAPES = [
    ((2, 5), Layout(), (), 5),
    ((2, 7, 5), Layout(), (7,), 5),
    ((2, 5, 7), Layout(channel_dim=1), (7,), 5),
    ((7, 2, 5), Layout(batch_dim=1), (7,), 5),
    ((2, 7, 5), Layout(skip_tokens=1), (6,), 5),
    ((2, 5, 3, 4), Layout(), (3, 4), 5),
    ((2, 3, 4, 5), Layout(channel_dim=-1), (3, 4), 5),
    ((2, 5, 2, 3, 4), Layout(), (2, 3, 4), 5),
    ((2, 2, 3, 4, 5), Layout(channel_dim=-1), (2, 3, 4), 5),
]


@pytest.mark.parametrize(("shape", "layout", "grid", "c"), SHAPES)
def test_tokens_are_a_view_with_channels_last(
    shape: tuple[int, ...], layout: Layout, grid: tuple[int, ...], c: int
) -> None:
    x = torch.randn(shape)
    tokens, found = layout.tokens(x)
    n = 1
    for size in grid:
        n *= size
    assert found == grid
    assert tokens.shape == (2, n, c)
    assert tokens.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_tokens_of_a_map_are_its_pixels_row_by_row() -> None:
    x = torch.randn(2, 3, 4, 5)
    tokens, _ = Layout().tokens(x)
    assert torch.equal(tokens[1, 2 * 5 + 3], x[1, :, 2, 3])
    memory = x.to(memory_format=torch.channels_last)
    assert torch.equal(Layout().tokens(memory)[0], tokens)
    assert torch.equal(Layout(skip_tokens=2).tokens(tokens)[0], tokens[:, 2:])


def test_what_looks_channels_last_must_be_said() -> None:
    with pytest.raises(ValueError, match="channel_dim=-1 if it is"):
        Layout().tokens(torch.randn(2, 7, 7, 96))
    assert Layout(channel_dim=1).tokens(torch.randn(2, 7, 7, 96))[1] == (7, 96)
    assert Layout().tokens(torch.randn(2, 96, 7, 7))[1] == (7, 7)


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3, 4, 5, 6)])
def test_other_ranks_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected \(B, C\)"):
        Layout().tokens(torch.randn(shape))


@pytest.mark.parametrize("dim", [0, 4, -5])
def test_a_channel_axis_that_is_none(dim: int) -> None:
    with pytest.raises(ValueError, match="not a channel axis"):
        Layout(channel_dim=dim).tokens(torch.randn(2, 3, 4, 5))


def test_no_tokens_left() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        Layout(skip_tokens=4).tokens(torch.randn(2, 4, 5))


GRIDS = [((6,), (3,)), ((3,), (6,)), ((6, 4), (3, 2)), ((6, 4), (2, 4)), ((2, 6), (4, 3)), ((4, 2, 6), (2, 2, 3))]


@pytest.mark.parametrize(("source", "target"), GRIDS)
def test_windows_are_those_of_adaptive_pooling(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[len(source)]
    x = torch.randn(2, 3, *source, dtype=torch.float64)
    tokens = x.flatten(2).transpose(1, 2)
    expected = pool(x, target).flatten(2).transpose(1, 2)
    assert has_equal_windows(source, target)
    table = windows(source, target, like=x)
    torch.testing.assert_close(tokens[:, table].mean(2), expected)
    torch.testing.assert_close(average_onto(tokens, source, target), expected)


def test_uneven_windows_pool_the_whole_map() -> None:
    assert not has_equal_windows((5,), (3,))
    x = torch.randn(2, 3, 5)
    torch.testing.assert_close(average_onto(x.mT, (5,), (3,)), F.adaptive_avg_pool1d(x, 3).mT)


def test_grids_that_cannot_be_laid_over_each_other() -> None:
    assert common_grids((4, 4), (2, 2)) == ((4, 4), (2, 2))
    assert common_grids((4, 4), ()) == ((4, 4), (1, 1))
    assert common_grids((4, 4), (16,)) == ((16,), (16,))
    with pytest.raises(ValueError, match=r"\(4, 4\) belong to which of a grid \(4,\)"):
        common_grids((4, 4), (4,))
    with pytest.raises(ValueError, match="cannot tell"):
        common_grids((), (4, 4))


def layouts(b: int, t: int, c: int) -> list[Tensor]:
    torch.manual_seed(0)
    first = torch.randn(b, c, t, dtype=torch.float64).transpose(1, 2)
    last = torch.randn(b, t, c, dtype=torch.float64)
    return [first, last, torch.randn(b, t, 2 * c, dtype=torch.float64)[:, :, ::2]]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 4])
def test_tokens_at(which: int, rows: int) -> None:
    tokens = layouts(4, 9, 3)[which]
    index = torch.stack([torch.randperm(9)[:5] for _ in range(rows)])
    expected = torch.stack([tokens[i, index[i % rows]] for i in range(4)])
    assert torch.equal(take(tokens, index), expected)
    assert torch.equal(tokens_at(tokens, index), expected)
    assert channels_first(tokens) == (which == 0)


@pytest.mark.parametrize("rows", [1, 4])
def test_tokens_may_be_overwritten_after_they_were_picked(rows: int) -> None:
    leaf = torch.randn(4, 9, 3, requires_grad=True)
    tokens = leaf.clone()
    picked = tokens_at(tokens, torch.stack([torch.randperm(9)[:5] for _ in range(rows)]))
    tokens.relu_()
    picked.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.sum() == 4 * 5 * 3


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 4])
def test_first_and_second_derivatives_of_picked_tokens(which: int, rows: int) -> None:
    tokens = layouts(4, 6, 2)[which].requires_grad_()
    index = torch.stack([torch.randperm(6)[:3] for _ in range(rows)])
    assert torch.autograd.gradcheck(lambda t: tokens_at(t, index).square(), tokens)
    assert torch.autograd.gradgradcheck(lambda t: tokens_at(t, index).square(), tokens)


def test_the_gradient_of_a_map_is_laid_out_as_the_map() -> None:
    y = torch.randn(2, 3, 4, 5, requires_grad=True)
    tokens_at(Layout().tokens(y)[0], torch.tensor([[1, 7]])).sum().backward()
    assert y.grad is not None
    assert y.grad.is_contiguous()
