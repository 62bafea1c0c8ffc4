"""preserve= with micro_batch=, on two ranks and with split weights: the same terms and weights as one plain process."""

import os
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.engine.processes import code, start_ranks
from tests.methods import nets
from torch import Tensor

from reglet.backbones import ViT
from reglet.engine import checkpoint
from reglet.engine.build import build_parts
from reglet.engine.config import from_flat
from reglet.engine.gradient import require_splittable
from reglet.engine.launch import launch
from reglet.engine.settings import Settings
from reglet.engine.shard import whole
from reglet.engine.state import State, compile_method
from reglet.losses import VICRegLoss
from reglet.method import Batch, Method
from reglet.methods import JointEmbedding, Partly, Preserved, Regularized
from reglet.shares import EVERY, SharedWeight

STEPS, N = 3, 8
Found = tuple[list[dict[str, float]], dict[str, Tensor]]  # the terms of every step, and all tensors in the end


def moved(m: Method, keep: str, weight: Any) -> Preserved:
    """Held to weights that are not its own, so that every term has a gradient from the first step on."""
    made = Preserved(m, keep.split("+"), weight=weight)
    with torch.no_grad():
        for p in made.start.parameters():
            p *= 0.8
    return made


def held(keep: str, weight: Any = 0.5) -> Method:
    if "class" in keep:
        torch.manual_seed(3)
        vit = ViT(dim=8, depth=2, heads=2, size=16, patch=4)
        return moved(JointEmbedding(vit, VICRegLoss(gather=True), projector=nets.mlp(8, 7, 5)).double(), keep, weight)
    return moved(nets.method("predictive" if keep.startswith("jepa") else "joint"), keep.removeprefix("jepa+"), weight)


def trained(method: Method, *, sizes: tuple[int, ...], first: int = 0, **words: Any) -> Found:
    settings = Settings(accelerator="cpu", batch=N, optimizer="sgd", lr=0.5, doctor="off", **words)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        state = State(launch(settings), method, settings)
        state.done = first
        terms = []
        for step in range(first, first + STEPS):
            every = nets.batch(N, sizes=sizes, n_global=min(2, len(sizes)), seed=step)
            world, rank = state.fabric.world_size, state.fabric.global_rank
            state.backward(every.take(slice(rank * N // world, (rank + 1) * N // world)), lr=0.5, steps=100)
            terms.append({name: float(term.detach()) for name, term in state.terms.items()})
            state.step(100)
        found = checkpoint.collect(state.method, None, None)
        return terms, {key.removeprefix("method."): whole(x) for key, x in found.items()}
    finally:
        torch.set_default_dtype(before)


def close(found: Found, expected: Found) -> None:
    for ours, theirs in zip(found[0], expected[0], strict=True):
        assert list(ours) == list(theirs)
        assert ours == pytest.approx(theirs, rel=1e-8, abs=1e-12)
    for key, value in expected[1].items():
        torch.testing.assert_close(found[1][key], value, rtol=0, atol=1e-9, msg=lambda m, key=key: f"{key}: {m}")


KEEP = ["features", "gram", "l2sp", "features+gram+l2sp", "class+gram", "jepa+l2sp"]


@pytest.mark.parametrize("weight", [0.5, "share:0.2"])
@pytest.mark.parametrize("keep", KEEP)
def test_slices_of_a_batch_have_the_gradient_of_the_whole(keep: str, weight: Any) -> None:
    """Three and a rest of two samples; views of two sizes; shares that are measured one after another."""
    sizes = (16,) if keep.startswith("jepa") else (16, 16) if "class" in keep else nets.MULTI
    expected = trained(held(keep, weight), sizes=sizes)
    close(trained(held(keep, weight), sizes=sizes, micro_batch=3), expected)
    for kind in keep.removeprefix("jepa+").split("+"):
        assert abs(expected[0][0][f"preserve.{kind}"]) > 1e-7
    without = trained(cast(Preserved, held(keep, weight)).method, sizes=sizes)
    assert max(float((without[1][key] - expected[1][f"method.{key}"]).abs().max()) for key in without[1]) > 1e-4


def test_shares_are_measured_at_the_same_steps() -> None:
    """From step EVERY - 1 on: one without a measurement, one with it, one without."""

    def later() -> Method:
        method = held("features+gram", "share:0.2")
        for module in method.modules():
            if isinstance(module, SharedWeight):
                module.now_weight.fill_(0.3)
                module.mean_weight.fill_(0.2)
        return method

    expected = trained(later(), sizes=nets.MULTI, first=EVERY - 1)
    close(trained(later(), sizes=nets.MULTI, first=EVERY - 1, micro_batch=3), expected)


def test_it_may_stand_inside_and_twice() -> None:
    def made() -> Method:
        return Partly(moved(held("features"), "gram+l2sp", {"gram": "share:0.3", "l2sp": 0.1}), heads_first=1)

    close(trained(made(), sizes=nets.MULTI, micro_batch=3), trained(made(), sizes=nets.MULTI))


def main(words: list[str]) -> None:
    """`trained` in a process of its own, which writes what it found."""
    torch.set_num_threads(1)
    given = dict(word.split("=", 1) for word in words)
    out, keep, weight = (given.pop(key) for key in ("out", "keep", "weight"))
    kinds = {"micro_batch": int, "strategy": str}
    method = held(keep, weight if weight.startswith("share") else float(weight))
    found = trained(method, sizes=nets.MULTI, **{key: kinds[key](value) for key, value in given.items()})
    torch.save(found, f"{out}.{os.environ.get('RANK', 0)}")


@pytest.mark.parametrize(
    ("keep", "weight", "words"),
    [
        ("features+gram+l2sp", "0.5", ["strategy=fsdp"]),
        ("l2sp", "0.5", ["strategy=fsdp"]),
        ("features+gram+l2sp", "0.5", ["strategy=fsdp", "micro_batch=3"]),
        ("features+gram+l2sp", "0.5", ["micro_batch=3"]),
    ],
    ids=["fsdp", "fsdp l2sp", "fsdp in slices", "ddp in slices"],
)
def test_two_ranks_train_as_one_process(tmp_path: Path, keep: str, weight: str, words: list[str]) -> None:
    """Each has the other half of the samples.  A term that sees samples is the mean of those of the ranks."""
    ranks = start_ranks(
        2, f"out={tmp_path / 'two'}", f"keep={keep}", f"weight={weight}", *words, module="tests.engine.test_preserve"
    )
    assert [code(rank) for rank in ranks] == [0, 0]
    found: list[Found] = [torch.load(f"{tmp_path / 'two'}.{rank}", weights_only=False) for rank in range(2)]
    terms = [{name: (a[name] + b[name]) / 2 for name in a} for a, b in zip(found[0][0], found[1][0], strict=True)]
    expected = trained(held(keep, float(weight)), sizes=nets.MULTI)
    close((terms, found[0][1]), expected)
    if "features" in keep:
        assert found[0][0][0]["preserve.features"] != found[1][0][0]["preserve.features"]
    assert found[0][0][0]["preserve.l2sp"] == found[1][0][0]["preserve.l2sp"]


def test_shares_in_slices_on_two_ranks(tmp_path: Path) -> None:
    """Ranks measure the norms of their own gradients, so they are compared with two ranks without slices."""
    found = []
    for words in ([], ["micro_batch=3"]):
        out = tmp_path / f"{len(words)}"
        given = f"out={out}", "keep=features+gram", "weight=share:0.2"
        ranks = start_ranks(2, *given, *words, module="tests.engine.test_preserve")
        assert [code(rank) for rank in ranks] == [0, 0]
        found.append([torch.load(f"{out}.{rank}", weights_only=False) for rank in range(2)])
    for plain, sliced in zip(*found, strict=True):
        close(sliced, plain)


def test_what_cannot_work_is_refused() -> None:
    base = {"command": "pretrain", "data": "digits", "batch": 16, "steps": 1, "accelerator": "cpu", "size": 16}
    config = from_flat({**base, "method": "byol", "preserve": "features", "micro_batch": 4})
    with pytest.raises(ValueError, match=r"needs a method with embed\(\) and objective\(\).*; BYOL has not"):
        require_splittable(build_parts(config).method)
    config = from_flat({**base, "method": "vicreg", "preserve": "features"})
    plain, split = launch(Settings(accelerator="cpu", batch=16)), Settings(accelerator="cpu", batch=16, strategy="fsdp")
    with pytest.raises(ValueError, match=r"measured on whole weights, which fsdp splits: give a number, such as"):
        State(plain, build_parts(config).method, split)
    inner = held("features")
    example = Batch([torch.zeros(2, 3, 16, 16, dtype=torch.float64)] * 2, n_global=2)
    around = Regularized(inner, "backbone.blocks.*", VICRegLoss(), weight=0.1, example=example)
    with pytest.raises(ValueError, match="Preserved is inside Regularized"):
        compile_method(around, in_parts=False)
