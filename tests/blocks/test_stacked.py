"""Heads computed together, and what ordinary autograd brings: hooks, second derivatives, checkpointing."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

import reglet.blocks.sim_head as sim_head
from reglet.attach import attach
from reglet.blocks import SIM
from reglet.blocks.distances import DISTANCES
from reglet.blocks.sim_head import Pair, SIMHead, losses


def heads_and_calls(sim: SIM, shapes: list[tuple[int, ...]]) -> tuple[list[SIMHead], list[Tensor], list[Tensor]]:
    torch.manual_seed(1)
    xs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    ys = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    heads = [sim.build(x, y.detach(), position=i) for i, (x, y) in enumerate(zip(xs, ys, strict=True))]
    assert all(isinstance(head, SIMHead) for head in heads)
    return heads, xs, ys  # type: ignore[return-value]


def plainly(head: SIMHead, pair: Pair) -> Tensor:
    """Layer by layer, each called as a module."""
    with torch.no_grad():
        target = nn.Sequential(*head.end_of_x)(pair.x)
    return DISTANCES[head.loss](nn.Sequential(*head.end_of_y)(pair.y), target)


@pytest.mark.parametrize("loss", sorted(DISTANCES))
@pytest.mark.parametrize("before", [True, False])
def test_together_is_one_by_one(loss: str, before: bool) -> None:
    sim = SIM(loss=loss, norm_before_predictor=before, dim=4)  # type: ignore[arg-type]
    heads, xs, ys = heads_and_calls(sim, [(3, 20, 9), (3, 20, 9), (3, 10, 9), (3, 20, 9), (3, 20, 16)])
    order = [0, 1, 2, 3, 4, 1]  # a block that is called twice is in there, too
    weights = torch.rand(len(order), dtype=torch.float64)

    def gradients(how: Callable[[Sequence[Pair]], list[Tensor]]) -> tuple[Tensor, list[Tensor]]:
        values = torch.stack(how([heads[i].after(heads[i].before(xs[i]), ys[i]) for i in order]))
        trained = [p for head in heads for p in head.parameters()]
        return values.detach(), list(torch.autograd.grad((weights * values).sum(), [*ys, *trained]))

    chosen = [heads[i] for i in order]
    found, found_g = gradients(lambda calls: losses(chosen, calls))
    expected, expected_g = gradients(lambda calls: [plainly(h, c) for h, c in zip(chosen, calls, strict=True)])
    torch.testing.assert_close(found, expected)
    for a, b in zip(found_g, expected_g, strict=True):
        torch.testing.assert_close(a, b)


def transformer() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 5, enable_nested_tensor=False), torch.randn(4, 12, 16)


def sizes_of_groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    real = sim_head.losses_of_equal
    monkeypatch.setattr(sim_head, "losses_of_equal", lambda h, pairs: (sizes.append(len(h)), real(h, pairs))[1])
    return sizes


def test_a_transformer_is_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = sizes_of_groups(monkeypatch)
    model, x = transformer()
    sim = attach(model, "layers.*", SIM(), example=x)
    model(x)
    sim.loss().backward()
    assert sizes == [5]
    assert all(p.grad is not None for p in sim.parameters())


def test_hooks_on_a_layer_of_a_head_run_and_see_that_head_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = sizes_of_groups(monkeypatch)
    model, x = transformer()
    sim = attach(model, "layers.*", SIM(), example=x)
    seen: list[tuple[int, ...]] = []
    sim.heads["layers/2"].net.predictor.register_forward_hook(lambda _m, _a, y: seen.append(tuple(y.shape)))
    model(x)
    sim.loss()
    assert sorted(sizes) == [1, 4]
    assert seen == [(4, 3, 16)]


LAYOUTS = {  # shape of a block's output, arguments of SIM
    "sequence": ((4, 9, 6), {}),
    "class token": ((4, 10, 6), {"skip_tokens": 1}),
    "batch second": ((9, 4, 6), {"batch_dim": 1}),
    "map": ((4, 6, 3, 3), {}),
    "channels last": ((4, 3, 3, 6), {"channel_dim": -1}),
    "two tokens": ((4, 2, 6), {}),
    "vector": ((8, 6), {}),
}


@pytest.mark.parametrize(("shape", "arguments"), LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("sampling", ["shared", "per_sample", "salient"])
@pytest.mark.parametrize("early", [True, False])
def test_hooks_on_an_output_see_the_gradient_of_sim(
    shape: tuple[int, ...], arguments: dict[str, int], sampling: str, early: bool
) -> None:
    """Clipping, gradient reversal and logging: a hook that gives zero leaves zero, from SIM as from the rest."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Tanh(), nn.Identity())
    sim = attach(model, "0", SIM(sampling=sampling, dim=5, **arguments), example=torch.randn(shape))  # type: ignore[arg-type]
    x = torch.randn(shape, requires_grad=True)
    seen: list[Tensor] = []

    def cut(g: Tensor) -> Tensor:
        seen.append(g)
        return 0 * g

    outputs: list[Tensor] = []
    if early:  # before the attachment's own hook has seen the output
        model[0].register_forward_hook(lambda _m, _a, y: y.register_hook(cut) and None, prepend=True)
    model[1].register_forward_pre_hook(lambda _m, args: outputs.append(args[0]))
    model(x)
    if not early:
        outputs[0].register_hook(cut)
    sim.loss().backward()
    assert len(seen) == 1
    assert seen[0].abs().sum() > 0
    assert x.grad is not None
    assert x.grad.abs().max() == 0


@pytest.mark.parametrize("shape", [(3, 8, 5), (3, 5, 3, 3)])
@pytest.mark.parametrize("sampling", ["shared", "per_sample"])
def test_the_second_derivative(shape: tuple[int, ...], sampling: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64, requires_grad=True)
    sim = SIM(dim=4, loss="norm_mse", sampling=sampling)  # type: ignore[arg-type]
    sim(x, y)
    head = sim.head
    assert head is not None
    assert torch.autograd.gradgradcheck(lambda t: head(head.after(head.before(x), t)), y)


def test_heads_in_bfloat16_compute_in_float32() -> None:
    x, y = torch.randn(3, 8, 5), torch.randn(3, 8, 5)
    heads = [SIM().build(x, y, position=0) for _ in range(2)]
    assert heads[0] is not None
    assert heads[1] is not None
    heads[1].to(torch.bfloat16)
    heads[0].load_state_dict(heads[1].state_dict())
    values = [h(h.after(h.before(x.bfloat16()), y.bfloat16())) for h in heads]
    assert values[1].dtype == torch.float32
    assert torch.equal(*values)


def test_no_two_entries_of_a_state_share_memory() -> None:
    """safetensors and transformers refuse those."""
    for arguments in ({}, {"match": "pre"}, {"shared": False}, {"dim": None}):
        for c_in in (6, 4):
            state = SIM(**arguments).head_of(c_in, 6).state_dict()  # type: ignore[arg-type]
            assert len({t.untyped_storage().data_ptr() for t in state.values()}) == len(state)
