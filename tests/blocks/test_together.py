"""Heads computed together, and picked tokens whose gradient is put in its place late: equal to the plain way."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from reglet.attach import attach
from reglet.blocks import SIM
from reglet.blocks.fused import pick
from reglet.blocks.sim_head import Pair, SIMHead
from reglet.blocks.together import losses
from reglet.blocks.tokens import Layout
from reglet.blocks.tokens import pick as plain_pick

Use = Callable[[Tensor, Tensor], Tensor]  # of y and of the picked rows: a scalar


def heads_and_calls(sim: SIM, shapes: list[tuple[int, ...]]) -> tuple[list[SIMHead], list[Tensor], list[Tensor]]:
    torch.manual_seed(1)
    xs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    ys = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    heads = [sim.build(x, y.detach(), position=i) for i, (x, y) in enumerate(zip(xs, ys, strict=True))]
    assert all(isinstance(head, SIMHead) for head in heads)
    return heads, xs, ys  # type: ignore[return-value]


def plainly(head: SIMHead, pair: Pair) -> Tensor:
    """By autograd alone."""
    from reglet.blocks.distances import DISTANCES

    with torch.no_grad():
        target = nn.Sequential(*head.x_layers)(pair.x)
    return DISTANCES[head.loss](nn.Sequential(*head.layers)(pair.y), target)


@pytest.mark.parametrize("loss", ["norm_l2", "norm_mse", "mse", "l1", "smooth_l1", "cosine", "kl", "wasserstein"])
@pytest.mark.parametrize("before", [True, False])
def test_together_is_one_by_one(loss: str, before: bool) -> None:
    sim = SIM(loss=loss, norm_before_predictor=before, dim=4)  # type: ignore[arg-type]
    heads, xs, ys = heads_and_calls(sim, [(3, 20, 9), (3, 20, 9), (3, 10, 9), (3, 20, 9), (3, 20, 16)])
    order = [0, 1, 2, 3, 4, 1]  # a block that is called twice is in there, too
    weights = torch.rand(len(order), dtype=torch.float64)

    def gradients(how: Callable[[list[Pair]], list[Tensor]]) -> tuple[Tensor, list[Tensor]]:
        calls = [heads[i].after(heads[i].before(xs[i]), ys[i]) for i in order]
        assert all(isinstance(call, Pair) for call in calls)
        values = torch.stack(how(calls))  # type: ignore[arg-type]
        trained = [p for head in heads for p in head.parameters()]
        return values.detach(), list(torch.autograd.grad((weights * values).sum(), [*ys, *trained]))

    chosen = [heads[i] for i in order]
    for head, x, y in zip(heads, xs, ys, strict=True):
        head.after(head.before(x), y)  # now the grids are known, and the places stay
    found, found_g = gradients(lambda calls: losses(chosen, calls))
    expected, expected_g = gradients(lambda calls: [plainly(h, c) for h, c in zip(chosen, calls, strict=True)])
    torch.testing.assert_close(found, expected)
    for a, b in zip(found_g, expected_g, strict=True):
        torch.testing.assert_close(a, b)


def test_a_transformer_is_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    import reglet.blocks.together as together

    sizes: list[int] = []
    real = together.distances_of
    monkeypatch.setattr(
        together, "distances_of", lambda heads, pairs: (sizes.append(len(heads)), real(heads, pairs))[1]
    )
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 5, enable_nested_tensor=False)
    x = torch.randn(4, 12, 16)
    sim = attach(model, "layers.*", SIM(), example=x)
    model(x)
    sim.loss().backward()
    assert sizes == [5]
    assert all(p.grad is not None for p in sim.parameters())
    sim.remove()


USES: dict[str, Use] = {
    "rows alone": lambda y, rows: rows.square().sum(),
    "after the rest": lambda y, rows: y.sin().sum() + rows.square().sum(),
    "the rest twice": lambda y, rows: y.sin().sum() + rows.square().sum() + y.square().sum(),
    "a sum, whose gradient is one number": lambda y, rows: y.sum() + rows.square().sum(),
}
LAYOUTS = {
    "sequence": (Layout(), (4, 9, 3)),
    "class token": (Layout(skip_tokens=1), (4, 10, 3)),
    "batch second": (Layout(batch_dim=1), (9, 4, 3)),
    "map": (Layout(), (4, 3, 3, 3)),
    "channels last": (Layout(channel_dim=-1), (4, 3, 3, 5)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize(("layout", "shape"), LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("hooked", [False, True])
def test_the_gradient_of_picked_tokens(use: Use, layout: Layout, shape: tuple[int, ...], hooked: bool) -> None:
    def as_tokens(t: Tensor) -> Tensor:
        return layout.tokens(t)[0]

    torch.manual_seed(0)
    leaf = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    seen: list[Tensor] = []
    found = []
    for late in (True, False):
        y = leaf * 2
        if hooked:
            y.register_hook(lambda g: (seen.append(g), seen.append(g.clone()))[2:] or None)
        places = torch.tensor([[0, 2, 5]])
        rows = pick(y, as_tokens, places, torch.float64) if late else plain_pick(as_tokens(y), places)
        loss = use(y, rows)
        (once,) = torch.autograd.grad(loss, leaf, retain_graph=True)
        (again,) = torch.autograd.grad(loss, leaf)
        assert torch.equal(once, again)
        found.append(once)
    torch.testing.assert_close(*found)
    for kept, as_it_was in zip(seen[::2], seen[1::2], strict=True):
        assert torch.equal(kept, as_it_was)  # what another hook kept is not written to


def test_the_gradient_where_tokens_are_a_copy() -> None:
    """Two tokens of each sample, batch second: as one sample of all tokens they lie in another order."""
    layout = Layout(batch_dim=1)

    def as_tokens(t: Tensor) -> Tensor:
        return layout.tokens(t)[0].flatten(0, 1)[None]

    leaf = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    places = torch.tensor([[1, 4, 7]])
    found = []
    for late in (True, False):
        y = leaf * 2
        rows = pick(y, as_tokens, places, torch.float64) if late else plain_pick(as_tokens(y), places)
        found.append(torch.autograd.grad(rows.square().sum() + y.sin().sum(), leaf)[0])
    torch.testing.assert_close(*found)


def test_the_gradient_of_a_block_output_that_is_overwritten() -> None:
    leaf = torch.randn(4, 9, 3, requires_grad=True)
    found = []
    for late in (True, False):
        y = leaf * 2
        places = torch.tensor([[0, 2, 5]])
        rows = pick(y, lambda t: t, places, torch.float32) if late else plain_pick(y, places)
        y.mul_(3)
        found.append(torch.autograd.grad(rows.square().sum() + y.sum(), leaf)[0])
    torch.testing.assert_close(*found)
