"""micro_batch: the gradient of the whole batch, with the memory of a part."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from tests.engine.toy import Brighten, Toy, images, toy
from tests.methods import nets
from tests.ranks import run
from torch import Tensor, nn

from reglet.engine.gradient import backward, require_splittable
from reglet.engine.launch import launch
from reglet.engine.order import generator
from reglet.engine.settings import Settings
from reglet.engine.state import AnyCall, State
from reglet.losses import SIGReg
from reglet.method import Batch
from reglet.methods import NextEmbedding, Predictive
from reglet.schedules import Share
from reglet.types import Terms


def step(method: Toy, *, micro_batch: int = 0, accumulate: int = 1, n: int = 24) -> tuple[Terms, list[Tensor]]:
    fabric = Fabric(accelerator="cpu", devices=1)
    policy = Brighten()
    draws = policy.draw(n, generator(1))
    batch = Batch(policy.apply(images(n).images, draws), 2, draws=draws)
    method.train()
    method.zero_grad()
    model = fabric.setup(AnyCall(method))
    terms = backward(fabric, model, batch, micro_batch=micro_batch, accumulate=accumulate, seed=5)
    return terms, [p.grad.clone() for p in method.parameters() if p.grad is not None]


def apart(a: list[Tensor], b: list[Tensor]) -> float:
    """Relative to the largest of the whole gradient: a bias before Barlow Twins' centring has none but rounding."""
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True)) / max(float(y.abs().max()) for y in b)


@pytest.mark.parametrize("loss", ["visreg", "barlow"])
@pytest.mark.parametrize("size", [6, 7, 24])
def test_equals_the_gradient_of_the_whole_batch(loss: str, size: int) -> None:
    terms, gradient = step(toy(loss, norm=False))
    cached_terms, cached = step(toy(loss, norm=False), micro_batch=size)
    assert terms.keys() == cached_terms.keys()
    for name, term in terms.items():
        torch.testing.assert_close(cached_terms[name], term, rtol=1e-5, atol=1e-7)
    assert apart(cached, gradient) < 1e-5


def test_accumulation_is_not_the_gradient_of_the_whole_batch() -> None:
    """Why micro_batch is there: losses of parts do not know the whole's statistics."""
    _, gradient = step(toy(norm=False))
    _, averaged = step(toy(norm=False), accumulate=4)
    assert apart(averaged, gradient) > 1e-2


def test_dropout_is_the_same_in_both_passes() -> None:
    """With the embeddings of one pass and the gradient of another network, this would not be a gradient at all."""
    method = toy(norm=False, dropout=0.5)
    seen: list[Tensor] = []
    method.head.register_forward_hook(lambda module, inputs, output: seen.append(output.detach().clone()))
    step(method, micro_batch=8)
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert len(first) == 6
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])


def test_batch_norm_averages_move_once_a_micro_batch() -> None:
    method = toy()
    norm = next(m for m in method.modules() if isinstance(m, nn.BatchNorm2d))
    step(method, micro_batch=8)
    assert int(norm.num_batches_tracked) == 3 * 2  # micro-batches x views
    assert norm.track_running_stats


def test_slices_are_drawn_once_a_step() -> None:
    method = toy(norm=False)
    step(method, micro_batch=6)
    assert [int(v) for k, v in method.state_dict().items() if k.endswith("_extra_state")] == [1]


def test_a_method_without_parts_is_refused() -> None:
    require_splittable(toy())
    with pytest.raises(ValueError, match=r"micro_batch needs a method with embed\(\) .* Identity has not"):
        require_splittable(nn.Identity())


def forecasts(name: str, *, micro_batch: int, **changes: Any) -> tuple[Terms, list[Tensor]]:
    """One step of prediction, of masked images or of videos with actions."""
    torch.manual_seed(0)
    if name == "images":
        method, batch = nets.predictive().double(), nets.batch(9, sizes=(16,), n_global=1)
    else:
        own = {"projector": nets.mlp(nets.DIM, 7, 5), "embedding": 5, "dropout": 0.0, "together": name == "together"}
        step = NextEmbedding(nets.DIM, actions=2, width=8, depth=1, heads=2, **own)
        method = Predictive(nets.Net(), SIGReg(slices=16), predictor=step, **changes).double()
        g = torch.Generator().manual_seed(1)
        video = torch.randn(9, 4, 3, 8, 8, generator=g, dtype=torch.float64)
        batch = Batch([video], actions=torch.randn(9, 4, 2, generator=g, dtype=torch.float64))
    for p in method.parameters():  # gates that are 0 would hide the predictor
        nn.init.normal_(p, std=0.3)
    fabric = Fabric(accelerator="cpu", devices=1)
    model = fabric.setup(AnyCall(method.train()))
    terms = backward(fabric, model, batch, micro_batch=micro_batch, accumulate=1, seed=5)
    return terms, [p.grad.clone() for p in method.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", ["images", "video", "together", "detached"])
def test_a_forecast_in_parts_has_the_gradient_of_the_whole(name: str) -> None:
    changes = {"detach": True} if name == "detached" else {}
    terms, gradient = forecasts(name, micro_batch=0, **changes)
    for size in (4, 9):
        cached_terms, cached = forecasts(name, micro_batch=size, **changes)
        assert terms.keys() == cached_terms.keys()
        for term in terms:
            torch.testing.assert_close(cached_terms[term], terms[term])
        assert len(cached) == len(gradient) > 10
        assert apart(cached, gradient) < 1e-6


def test_a_share_of_the_gradient_is_not_measured_in_parts() -> None:
    method = nets.predictive()
    require_splittable(method)
    shared = Predictive(method.backbone, SIGReg(slices=8), predictor=method.predictor, weight=Share(0.3))
    with pytest.raises(ValueError, match=r"micro_batch: the share of the gradient .* Give weight= a number"):
        require_splittable(shared)


def compiled(rank: int, world: int) -> dict[str, list[int]]:
    """How many graphs were compiled after each of twenty steps.

    In a process of its own: dynamo cannot trace the checks of shapes that are on in tests.
    """
    plain = torch.compile
    return {kind: graphs_after_steps(kind, plain) for kind in ("barlow", "visreg", "sigreg", "swd")}


def graphs_after_steps(kind: str, plain: Callable[..., Any]) -> list[int]:
    graphs: list[int] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(len(inputs))
        return graph.forward

    torch._dynamo.reset()
    torch.compile = partial(plain, backend=count)
    method, policy = toy(kind), Brighten()
    settings = Settings(accelerator="cpu", batch=24, micro_batch=10, compile=True)
    state = State(launch(settings), method, settings)
    after = []
    for i in range(20):
        draws = policy.draw(24, generator(i))
        state.backward(Batch(policy.apply(images(24).images, draws), 2, draws=draws), lr=0.1)
        state.step(20)
        after.append(len(graphs))
    return after


def test_compiles_and_stays_compiled(tmp_path: Path) -> None:
    """`embed` is compiled with and without a graph; after the second step nothing is again."""
    (found,) = run("tests.engine.test_gradient_cache:compiled", world=1, folder=tmp_path)
    for kind, after in found.items():
        assert after[0] >= 2, kind
        assert after[1:] == after[1:2] * 19, (kind, after)
