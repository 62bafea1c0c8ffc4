"""The laws of D4, bit by bit."""

import pytest
import torch
from torch import Tensor

from reglet.groups import D4, act, act_on_tokens

GRIDS = [(4, 4), (3, 5), (1, 6), (2, 1)]


def one(number: int) -> D4:
    return D4(torch.tensor([number % 4]), torch.tensor([number >= 4]))


def image(grid: tuple[int, int], n: int = 1) -> Tensor:
    return torch.arange(n * 3 * grid[0] * grid[1]).reshape(n, 3, *grid)


def by_torch(x: Tensor, number: int) -> Tensor:
    """The definition, with torch's own operations."""
    return torch.rot90(x.flip(3) if number >= 4 else x, number % 4, (2, 3))


@pytest.mark.parametrize("grid", GRIDS)
def test_action_is_flip_then_turn(grid: tuple[int, int]) -> None:
    x = image(grid)
    for e in range(8):
        assert torch.equal(act(x, one(e)), by_torch(x, e))


@pytest.mark.parametrize("grid", GRIDS)
def test_the_action_of_a_product_is_the_product_of_actions(grid: tuple[int, int]) -> None:
    x = image(grid)
    for a in range(8):
        for b in range(8):
            assert torch.equal(act(x, one(a) @ one(b)), by_torch(by_torch(x, b), a))


@pytest.mark.parametrize("grid", GRIDS)
def test_identity_and_inverse(grid: tuple[int, int]) -> None:
    x = image(grid)
    assert torch.equal(act(x, D4.identity(1)), x)
    for e in range(8):
        assert torch.equal(act(act(x, one(e)), one(e).inverse()), x)
        assert torch.equal(act(act(x, one(e).inverse()), one(e)), x)


def test_eight_elements_closed_associative_and_not_commutative() -> None:
    g = D4.every()
    assert g.number.tolist() == list(range(8))
    a, b, c = (D4(g.turn[i], g.flip[i]) for i in torch.cartesian_prod(*[torch.arange(8)] * 3).T)
    assert torch.equal(((a @ b) @ c).number, (a @ (b @ c)).number)
    products = (a @ b).number.view(8, 8, 8)[:, :, 0]
    for line in (*products, *products.T):
        assert sorted(line.tolist()) == list(range(8))
    assert not torch.equal(products, products.T)


def test_each_sample_by_its_own_element() -> None:
    x = image((4, 4), n=8)
    out = act(x, D4.every())
    for e in range(8):
        assert torch.equal(out[e : e + 1], by_torch(x[e : e + 1], e))


@pytest.mark.parametrize("odd", [0, 1])
def test_tokens_are_the_map_row_by_row(odd: int) -> None:
    g = D4(torch.tensor([odd, 2 + odd, odd]), torch.tensor([True, False, False]))
    x = image((3, 5), n=3)
    tokens = act_on_tokens(x.flatten(2).transpose(1, 2), g, grid=(3, 5))
    assert torch.equal(tokens, act(x, g).flatten(2).transpose(1, 2))


def test_gradient_of_a_permutation_is_the_inverse_one() -> None:
    g = one(5)
    x = torch.randn(1, 2, 3, 5, requires_grad=True)
    seed = torch.randn(1, 2, 5, 3)
    (act(x, g) * seed).sum().backward()
    assert torch.equal(x.grad, act(seed, g.inverse()))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="0 to 3 quarters"):
        D4(torch.tensor([4]), torch.tensor([False]))
    with pytest.raises(ValueError, match="one element for each of 2 samples, got 8"):
        act(image((4, 4), n=2), D4.every())
    with pytest.raises(ValueError, match="some elements exchange height and width"):
        act(image((3, 5), n=8), D4.every())
    with pytest.raises(ValueError, match="a grid of 3 x 5 has 15 tokens, got 14"):
        act_on_tokens(torch.zeros(1, 14, 2), one(0), grid=(3, 5))
    with pytest.raises(ValueError, match="composed one by one"):
        D4.identity(2) @ D4.identity(3)
