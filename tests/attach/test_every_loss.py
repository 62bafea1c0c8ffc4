"""The laws of `attach`, swept over every loss that has a name: on one place, on two, and with a frozen teacher."""

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from reglet.attach import Attachment, attach
from reglet.engine.attachments import ATTACHED, ONE_PLACE

WAYS = {
    "tokens": {"on": "tokens", "rho": 0.5},
    "pooled": {"on": "pooled"},
    "class": {"on": "class"},
    "block": {},
    "own": {"to": "blocks.3"},
    "teacher": {"to": "blocks.3"},
}
CASES = [
    (name, way)
    for name in ATTACHED
    for way in (("tokens", "pooled", "class") if name in ONE_PLACE else ("own", "teacher"))
] + [("sim", "block")]
every = pytest.mark.parametrize(("name", "way"), CASES)


class Net(nn.Module):
    """Tokens in, tokens out; the ReLU overwrites the output of the block before it."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.blocks = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self.blocks, x, use_reentrant=False) if self.checkpointed else self.blocks(x)
        return y


def net(seed: int = 0, *, checkpointed: bool = False) -> Net:
    torch.manual_seed(seed)
    return Net(checkpointed=checkpointed).double()


def tokens(n: int = 8, t: int = 9) -> Tensor:
    return torch.randn(n, t, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def attached(name: str, way: str, model: nn.Module, x: Tensor) -> Attachment:
    known = inspect.signature(ATTACHED[name]).parameters
    wanted: dict[str, Any] = {"gather": True, "shared_slices": True, "slices": 8}
    if name == "sim":
        wanted["dim"] = 16  # two, the root of 8, may all be dead behind a ReLU
    loss = ATTACHED[name](**{key: value for key, value in wanted.items() if key in known})
    more = {"teacher": net(1)} if way == "teacher" else {}
    return attach(model, "blocks.1", loss, name="it", example=x, **WAYS[way], **more)


def gradients(model: nn.Module, link: Attachment, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    link.zero_grad()
    (model(x).square().mean() + link.loss()).backward()
    return [p.grad for p in [*model.parameters(), *link.parameters()] if p.grad is not None]


def is_free(model: nn.Module) -> bool:
    return not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@every
def test_removed_without_a_trace_and_free_in_eval(name: str, way: str) -> None:
    model, x = net(), tokens()
    state, bare = copy.deepcopy(model.state_dict()), model(x)
    with FlopCounterMode(display=False) as plain:
        copy.deepcopy(model).eval()(x)
    link = attached(name, way, model, x)
    assert torch.equal(model(x), bare)
    assert link.loss().requires_grad
    with FlopCounterMode(display=False) as counted:
        assert torch.equal(model.eval()(x), bare)
    assert counted.get_total_flops() == plain.get_total_flops() > 0
    assert link.loss() == 0
    model.train()
    link.remove()
    assert is_free(model)
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert torch.equal(model(x), bare)


@every
def test_checkpointing_and_copies(name: str, way: str) -> None:
    found = []
    for checkpointed in (False, True):
        model, x = net(checkpointed=checkpointed), tokens()
        both = nn.ModuleDict({"model": model, "link": attached(name, way, model, x)})
        copy.deepcopy(model)(x)  # which is not attached
        with pytest.raises(RuntimeError, match="no block ran"):
            both["link"].loss()  # and places are drawn anew after it
        twin = copy.deepcopy(both)
        found += [gradients(both["model"], both["link"], x), gradients(twin["model"], twin["link"], x)]
        twin["link"].remove()
        assert is_free(twin["model"])
        assert not is_free(model)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b)
    # the loss has a gradient of its own on what comes before it
    bare, x = net(), tokens()
    bare(x).square().mean().backward()
    assert not torch.allclose(bare.blocks[0].weight.grad, found[0][0])


@every
def test_hooks_on_the_block_see_the_gradient(name: str, way: str) -> None:
    model, x = net(), tokens().requires_grad_()
    link = attached(name, way, model, x.detach())
    model.blocks[1].register_forward_hook(lambda _m, _a, y: y.register_hook(lambda g: 0 * g) and None, prepend=True)
    model(x)
    link.loss().backward()
    assert x.grad is None or x.grad.abs().max() == 0


def step(rank: int, world: int) -> dict[str, list[Tensor]]:
    """Gradients of the model and of the heads, on this rank's part of the batch."""
    found = {}
    for name, way in CASES:
        x = tokens()[rank * 8 // world : (rank + 1) * 8 // world]
        model = net()
        link = attached(name, way, model, x)
        wrapped = DistributedDataParallel(model) if world > 1 else model
        (wrapped(x).square().mean() + link.loss()).backward()
        found[f"{name} {way}"] = [p.grad for p in [*model.parameters(), *link.parameters()]]
    return found


def test_two_ranks_train_as_one_process_on_the_whole_batch(tmp_path: Path) -> None:
    alone = step(0, 1)
    for one in ranks.run("tests.attach.test_every_loss:step", world=2, folder=tmp_path):
        for name, expected in alone.items():
            for a, b in zip(one[name], expected, strict=True):
                torch.testing.assert_close(a, b, msg=lambda m, name=name: f"{name}: {m}")
