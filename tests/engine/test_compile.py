"""compile=true: the weights of a run without it, listed graph breaks, and nothing compiled after the second step."""

from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from tests.ranks import run
from torch import Tensor

from reglet.engine.build import build_parts
from reglet.engine.config import from_flat
from reglet.engine.feed import Place
from reglet.engine.launch import launch
from reglet.engine.state import State

STEPS = 4
PLAIN = torch.compile
BASE: dict[str, Any] = {
    "command": "pretrain", "data": "digits", "labels": "40", "model": "convnet", "size": 16, "batch": 16,
    "steps": STEPS, "accelerator": "cpu", "optimizer": "sgd", "lr": 0.05, "views": "digits",
}  # fmt: skip
SMALL = {"projector": "16-16", "loss.slices": 8}


class Row(NamedTuple):
    """breaks: functions that are kept out of the graph, each named in docs/scaling.md."""

    words: dict[str, Any]
    breaks: set[str]


ROWS = {
    "visreg": Row({"method": "visreg", **SMALL}, {"JointEmbedding.objective"}),
    "vicreg with SIM": Row(
        {"method": "vicreg", "projector": "16-16", "sim": "*"},
        {"JointEmbedding.objective", "AveragedGradients.watch", "Sampler.advance"},
    ),
    "byol": Row({"method": "byol"}, set()),
    "latentdr": Row({"command": "train", "latent": "latentdr"}, set()),
    "preserved": Row(
        {"method": "vicreg", "projector": "16-16", "preserve": "features,gram,l2sp", "preserve.weight": 0.5},
        {"JointEmbedding.objective"},
    ),
    "preserved by shares": Row(
        {"method": "vicreg", "projector": "16-16", "preserve": "features,gram"}, {"JointEmbedding.objective"}
    ),
    "preserved in slices": Row(
        {"method": "vicreg", "projector": "16-16", "preserve": "features,gram", "micro_batch": 8}, set()
    ),
    "heads first": Row({"method": "vicreg", "projector": "16-16", "heads_first": 2}, {"JointEmbedding.objective"}),
    "blocks computed twice": Row({"command": "train", "model": "vit_mini", "checkpoint_activations": True}, set()),
}


class Trained(NamedTuple):
    weights: dict[str, Tensor]
    graphs: list[int]  # compiled so far, after each step
    breaks: list[str]  # what torch says of each


def trained(words: dict[str, Any], *, compiled: bool) -> Trained:
    from torch._dynamo.backends.debugging import aot_eager
    from torch._dynamo.utils import counters

    graphs = [0]

    def backend(graph: Any, inputs: Any) -> Any:
        graphs[-1] += 1
        return aot_eager(graph, inputs)

    torch._dynamo.reset()
    counters.clear()
    torch.compile = partial(PLAIN, backend=backend)
    torch.nn.Module.compile = lambda self: setattr(  # type: ignore[method-assign, assignment]
        self, "_compiled_call_impl", torch.compile(self._call_impl)
    )
    config = from_flat({**BASE, **words, "compile": compiled})
    parts, fabric = build_parts(config), launch(config)
    feed, state = parts.feed, State(fabric, parts.method, config)
    feed.open(Place(channels_last=True), steps=STEPS)
    after = []
    for step in range(STEPS):
        state.backward(feed(step), lr=0.05, steps=STEPS)
        state.step(STEPS)
        after.append(graphs[-1])
    feed.close()
    return Trained(dict(state.method.state_dict()), after, list(counters["graph_break"]))


def both(rank: int, world: int) -> dict[str, tuple[Trained, Trained]]:
    """In a process of its own: dynamo cannot trace the checks of shapes that are on in tests."""
    return {name: (trained(row.words, compiled=False), trained(row.words, compiled=True)) for name, row in ROWS.items()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Trained, Trained]]:
    (every,) = run("tests.engine.test_compile:both", world=1, folder=tmp_path_factory.mktemp("compiled"))
    return every


@pytest.mark.parametrize("name", ROWS)
def test_compiled_is_what_it_was(name: str, found: dict[str, tuple[Trained, Trained]]) -> None:
    plain, compiled = found[name]
    assert plain.graphs == [0] * STEPS
    assert compiled.graphs[0] > 0
    if name == "heads first":  # the backbone is in eval mode in the first two steps
        assert compiled.graphs[0] == compiled.graphs[1] < compiled.graphs[2] == compiled.graphs[3]
    else:
        assert compiled.graphs[1:] == [compiled.graphs[1]] * (STEPS - 1)
    functions = {text.split("<function ")[1].split(" at ")[0] for text in compiled.breaks}
    assert functions == ROWS[name].breaks
    for key, value in plain.weights.items():
        torch.testing.assert_close(
            compiled.weights[key], value, rtol=1e-4, atol=1e-6, msg=lambda m, key=key: f"{key}: {m}"
        )


def test_hooks_that_come_and_go_are_refused() -> None:
    words = {"method": "simclr", "equivariant": "augself", "compile": True}
    config = from_flat({**BASE, **words})
    with pytest.raises(ValueError, match="compile=true does not work with equivariant="):
        State(launch(config), build_parts(config).method, config)
