"""Losses between the outputs of two blocks, of one network or with a frozen teacher's: the laws of `attach`."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import reglet
from reglet.attach import Layout, attach, watch

Loss = Callable[[], Any]


class Net(nn.Module):
    """Tokens in, tokens out; widths 6, 8, 8, 5.  The ReLU overwrites the output of the block before it."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.blocks = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 5))
        self.drop = nn.Dropout(0.5)
        self.drop.eval()

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        x = scale * x
        y = checkpoint(self.blocks, x, use_reentrant=False) if self.checkpointed else self.blocks(x)
        return self.drop(y)


def net(seed: int = 0, *, checkpointed: bool = False) -> Net:
    torch.manual_seed(seed)
    return Net(checkpointed=checkpointed).double()


def tokens(n: int = 4, t: int = 9) -> Tensor:
    return torch.randn(n, t, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def outputs(model: nn.Module, x: Tensor, *names: str) -> list[Tensor]:
    with torch.no_grad():
        eye = watch(model, list(names))
        with eye.open() as seen:
            model(x)
        eye.remove()
    return [seen[name][0] for name in names]


def gap(z: Tensor, target: Tensor) -> Tensor:
    assert z.ndim == target.ndim == 3
    return (z.mean() - target.mean()).square()


def gradients(model: nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}


FIRST, SECOND = {"blocks.0.weight", "blocks.0.bias"}, {"blocks.1.weight", "blocks.1.bias"}
THIRD = {"blocks.3.weight", "blocks.3.bias"}


@pytest.mark.parametrize(
    ("stop", "reached"), [("to", FIRST), ("from", FIRST | SECOND | THIRD), (None, FIRST | SECOND | THIRD)]
)
def test_value_and_what_the_gradient_reaches(stop: Any, reached: set[str]) -> None:
    model, x = net(), tokens()
    link = attach(model, {"from": "blocks.0", "to": "blocks.3"}, gap, stop=stop)
    model(x)
    head = link.terms()
    model.zero_grad()
    model(x)
    value = link.loss()
    value.backward()
    assert gradients(model) == reached
    a, b = outputs(model, x, "blocks.0", "blocks.3")
    project = link.heads["blocks/0->blocks/3"].projector
    own, other = (b, a) if stop == "from" else (a, b)
    torch.testing.assert_close(value, gap(project(own), other))
    assert list(head) == ["blocks.0->blocks.3"]


def test_a_stopped_side_gets_nothing_where_it_alone_has_parameters() -> None:
    """Of two branches, the one that is stopped."""
    model = nn.ModuleDict({"a": nn.Linear(6, 4), "b": nn.Linear(6, 4)}).double()
    model.forward = lambda x: (model["a"](x), model["b"](x))
    for stop, reached in (("to", {"a"}), ("from", {"b"}), (None, {"a", "b"})):
        link = attach(model, "a", gap, to="b", stop=stop)
        model.zero_grad()
        model(tokens())
        link.loss().backward()
        assert {name.split(".")[0] for name in gradients(model)} == reached
        link.remove()


def test_a_teacher_is_fed_as_the_model_and_left_alone() -> None:
    model, teacher, x = net(), net(1), tokens()
    before = copy.deepcopy(teacher.state_dict())
    teacher.drop.train()
    modes = [m.training for m in teacher.modules()]
    link = attach(model, "blocks.1", gap, teacher=teacher, to="blocks.1", example=x)
    assert list(link.parameters()) == []
    assert list(link.state_dict()) == ["criterion.sampler._extra_state"]
    model(x, scale=2.0)
    value = link.loss()
    value.backward()
    assert gradients(model) == FIRST | SECOND
    assert all(p.grad is None for p in teacher.parameters())
    assert [m.training for m in teacher.modules()] == modes
    own = model.blocks[:2](2 * x)
    torch.testing.assert_close(value, gap(own, teacher.blocks[:2](2 * x)))
    link.remove()
    assert all(torch.equal(a, b) for a, b in zip(teacher.state_dict().values(), before.values(), strict=True))
    for network in (model, teacher):
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())


def test_a_teacher_runs_once_per_training_forward_and_never_else() -> None:
    model, teacher, x = net(), net(1), tokens()
    runs: list[bool] = []
    teacher.register_forward_hook(lambda *_: runs.append(torch.is_grad_enabled()))
    link = attach(model, ["blocks.0", "blocks.1"], gap, teacher=teacher, to="blocks.1")
    model(x), model(x)
    assert runs == [False, False]
    assert link.loss() > 0
    with FlopCounterMode(display=False) as bare:
        copy.deepcopy(model).eval()(x)
    with FlopCounterMode(display=False) as attached:
        model.eval()(x)
    with torch.no_grad():
        model.train()(x)
    assert attached.get_total_flops() == bare.get_total_flops() > 0
    assert len(runs) == 2
    model.eval()(x)
    with torch.no_grad():
        assert link.loss() == 0


def test_a_part_of_the_model_feeds_the_teacher() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = net()

        def forward(self, batch: list[Tensor]) -> Tensor:
            return torch.stack([self.backbone(x) for x in batch]).sum()

    model, teacher, x = Around(), net(1), tokens()
    link = attach(model, "backbone.blocks.1", gap, teacher=teacher, to="blocks.1", inputs="backbone", example=([x],))
    model([x, -x])
    value = link.loss()
    pairs = [(model.backbone.blocks[:2](s * x), teacher.blocks[:2](s * x)) for s in (1, -1)]
    torch.testing.assert_close(value, (gap(*pairs[0]) + gap(*pairs[1])) / 2)


def test_a_teacher_moves_with_the_attachment() -> None:
    model, teacher, x = net().float(), net(1), tokens().float()
    link = attach(model, "blocks.1", gap, teacher=teacher, to="blocks.1")
    nn.ModuleDict({"link": link}).float()
    assert teacher.blocks[0].weight.dtype == torch.float32
    model(x)
    assert link.loss() > 0


TWO: dict[str, Loss] = {
    "cosine": reglet.Cosine,
    "l2": reglet.L2,
    "cka": reglet.CKA,
    "gram": reglet.Gram,
    "ntxent": reglet.PatchNTXent,
    "barlow": reglet.BarlowTwinsLoss,
    "sim": lambda: reglet.SIM(rho=0.5),
    "function": lambda: gap,
}
TAUGHT = [False, True]


def linked(model: nn.Module, loss: Any, *, taught: bool, **options: Any) -> Any:
    if taught:
        return attach(model, "blocks.1", loss, teacher=net(1), to="blocks.3", name="it", **options)
    return attach(model, {"from": "blocks.1", "to": "blocks.3"}, loss, name="it", **options)


@pytest.mark.parametrize("taught", TAUGHT, ids=["own", "teacher"])
@pytest.mark.parametrize("loss", list(TWO))
def test_laws(loss: str, taught: bool) -> None:
    """Heads where widths differ, checkpointing, eval, copies, removal."""
    found = []
    for checkpointed in (False, True):
        model, x = net(checkpointed=checkpointed), tokens()
        state, bare = copy.deepcopy(model.state_dict()), model(x)
        link = linked(model, TWO[loss](), taught=taught, example=x)
        assert len(list(link.parameters())) == {"cka": 0, "gram": 0, "sim": 8}.get(loss, 2)
        assert torch.equal(model(x), bare)
        assert list(model.state_dict()) == list(state)
        (bare.sum() + link.loss()).backward()
        found.append([p.grad for p in [*model.parameters(), *link.parameters()]])
        assert all(p.grad is not None for p in link.parameters())
        copy.deepcopy(model)(x)
        with pytest.raises(RuntimeError, match="no block ran"):
            link.loss()
        model.eval()(x)
        assert link.loss() == 0
        link.remove()
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_two_calls_are_both_seen_and_paired_in_order() -> None:
    model, x = net(), tokens()
    link = attach(model, "blocks.0", reglet.Cosine(), to="blocks.1")
    values = []
    for y in (x, -x):
        model(y)
        values.append(link.loss())
    model(x), model(-x)
    torch.testing.assert_close(link.loss(), torch.stack(values).mean())
    assert values[0] != values[1]


def test_calls_that_cannot_be_paired() -> None:
    model, x = net(), tokens()
    link = attach(model, "blocks.0", gap, to="blocks.1")
    model(x)
    model.blocks[0](x)
    with pytest.raises(RuntimeError, match=r"'blocks\.0' ran 2 times in training, and 'blocks\.1' 1 times"):
        link.loss()
    model.blocks[1].eval()
    model(x)
    with pytest.raises(RuntimeError, match=r"'blocks\.1' 0 times.*eval mode"):
        link.loss()


def test_an_input_that_the_model_overwrites_reaches_the_teacher_as_it_was() -> None:
    class Overwrites(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 4).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x.zero_())

    model, teacher, x = Overwrites(), net(1), tokens()
    link = attach(model, "linear", lambda z, target: target.sum() + 0 * z.sum(), teacher=teacher, to="blocks.0")
    expected = teacher.blocks[0](x).sum()
    model(x.clone())
    torch.testing.assert_close(link.loss(), expected)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_of_model_and_attachment_is_attached_to_itself(how: str) -> None:
    model, teacher, x = net(), net(1), tokens()
    both = nn.ModuleDict({"model": model, "link": attach(model, "blocks.1", gap, teacher=teacher, to="blocks.3")})
    model(x)
    copied = copy.deepcopy(both) if how == "deepcopy" else pickle.loads(pickle.dumps(both))
    value = both["link"].loss()
    copied["model"](x)
    other = copied["link"].loss()
    torch.testing.assert_close(other, value)
    other.backward()
    assert all(p.grad is None for p in model.parameters())
    if how == "deepcopy":
        assert copied["link"]._teacher.network is teacher
    copied["link"].remove()
    model(x)
    torch.testing.assert_close(both["link"].loss(), value)


def test_the_state_of_the_heads_is_saved_and_nothing_of_the_teacher() -> None:
    model, x = net(), tokens()
    link = linked(model, reglet.Cosine(), taught=True, example=x)
    assert set(link.state_dict()) == {f"heads.blocks/1->blocks/3.projector.{name}" for name in ("weight", "bias")} | {
        "criterion.sampler._extra_state"
    }
    other_model = net()
    other = linked(other_model, reglet.Cosine(), taught=True, example=x)
    for p in link.parameters():
        p.data.mul_(2)
    other.load_state_dict(link.state_dict())
    model(x), other_model(x)
    assert torch.equal(link.loss(), other.loss())


def test_heads_without_an_example_appear_with_the_first_forward() -> None:
    model, x = net(), tokens()
    link = linked(model, reglet.L2(), taught=False)
    with pytest.raises(RuntimeError, match=r"heads of blocks\.1->blocks\.3 do not exist yet"):
        link.parameters()
    state = torch.get_rng_state()
    model(x)
    assert len(list(link.parameters())) == 2
    assert torch.equal(torch.get_rng_state(), state)


def test_projectors() -> None:
    x = tokens()
    for projector, count in (("auto", 0), ("none", 0), ("linear", 2), ("mlp", 4)):
        model = net()
        link = attach(model, "blocks.0", reglet.L2(), to="blocks.1", projector=projector, example=x)
        assert len(list(link.parameters())) == count
        model(x)
        link.loss().backward()
        assert all(p.grad is not None for p in link.parameters())
    with pytest.raises(ValueError, match=r"blocks\.0->blocks\.3.*8 features are compared with 5, and projector='none'"):
        attach(net(), "blocks.0", reglet.L2(), to="blocks.3", projector="none", example=x)
    attach(net(), "blocks.0", reglet.CKA(), to="blocks.3", projector="none", example=x)


def test_several_pairs_keep_the_order_in_which_they_were_said() -> None:
    model, x = net(), tokens()
    link = attach(model, ["blocks.1", "blocks.0"], reglet.CKA(), to=["blocks.3", "blocks.1"])
    assert link.blocks == ["blocks.1->blocks.3", "blocks.0->blocks.1"]
    model(x)
    assert len(link.terms()) == 2
    link.remove()
    assert attach(model, "blocks.[013]", gap, teacher=net(1), to="blocks.[013]").blocks == [
        f"blocks.{i}->blocks.{i}" for i in (0, 1, 3)
    ]


def test_sim_reconstructs_the_side_that_is_stopped() -> None:
    """Its predictor is the identity and nothing is projected, so that the loss is the distance itself."""
    for stop, reached in (("to", FIRST), ("from", FIRST | SECOND)):
        model, x = net(), tokens()
        sim = reglet.SIM(dim=None, rho=1.0, loss="mse")
        link = attach(model, "blocks.0", sim, to="blocks.1", stop=stop, example=x)
        link.heads["blocks/0->blocks/1"].net.predictor = nn.Identity()  # type: ignore[union-attr]
        model(x)
        value = link.loss()
        value.backward()
        a = model.blocks[0](x)
        torch.testing.assert_close(value, (a - model.blocks[1](a)).square().mean())
        assert gradients(model) == reached
    with pytest.raises(ValueError, match="SIM has a target that gets no gradient"):
        attach(net(), "blocks.0", reglet.SIM(), to="blocks.1", stop=None)


class Maps(nn.Module):
    """A convolution, and tokens of the same image with a class token in front."""

    def __init__(self, size: tuple[int, int], cut: int) -> None:
        super().__init__()
        self.size, self.cut = size, cut
        self.map, self.tokens = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> None:
        self.map(x)
        small = nn.functional.avg_pool2d(x, self.cut)
        self.tokens(torch.cat([torch.full((len(x), 1, 3), 7.0), small.flatten(2).transpose(1, 2)], dim=1))


@pytest.mark.parametrize(("size", "cut"), [((4, 4), 1), ((4, 4), 2), ((8, 4), 2), ((4, 12), 4)])
def test_maps_and_tokens_of_different_grids_meet_in_the_coarser_one(size: tuple[int, int], cut: int) -> None:
    model, x = Maps(size, cut), torch.randn(2, 3, *size, requires_grad=True)
    link = attach(model, "map", reglet.L2(), to="tokens", layout=Layout(skip_tokens=1))
    model(x)
    assert link.loss() < 1e-12  # the map, averaged over the patches, is the tokens


def test_sequences_of_different_length_want_to_be_told() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fine, self.coarse = nn.Identity(), nn.Identity()

        def forward(self, x: Tensor) -> None:
            self.fine(x)
            maps = x.transpose(1, 2).unflatten(2, (4, 4))
            self.coarse(nn.functional.avg_pool2d(maps, 2).flatten(2).transpose(1, 2))

    x = torch.randn(2, 16, 3, requires_grad=True)
    model = Two()
    link = attach(model, "fine", reglet.L2(), to="coarse", layout=Layout(grid="square"))
    model(x)
    assert link.loss() < 1e-12
    link.remove()
    with pytest.raises(ValueError, match=r"16 tokens are compared with 4: say layout=Layout\(grid='square'\)"):
        attach(model, "fine", reglet.L2(), to="coarse", example=x)
    line = attach(model, "fine", reglet.L2(), to="coarse", layout=Layout(grid="line"))
    model(x)
    assert line.loss() > 1e-2
    with pytest.raises(ValueError, match="15 tokens fill no square"):
        attach(model, "fine", gap, to="coarse", name="n", layout=Layout(grid="square", skip_tokens=1), example=x)


EXPECTED = {
    "tokens": lambda y: y[:, 1:],
    "pooled": lambda y: y[:, 1:].mean(1, keepdim=True),
    "class": lambda y: y[:, :1],
}


@pytest.mark.parametrize("on", sorted(EXPECTED))
def test_what_the_loss_sees(on: Any) -> None:
    model, x = net(), tokens()
    link = attach(model, "blocks.0", reglet.L2(), to="blocks.1", on=on, layout=Layout(skip_tokens=1))
    model(x)
    value = link.loss()
    a, b = (EXPECTED[on](y) for y in (model.blocks[0](x), model.blocks[:2](x)))
    torch.testing.assert_close(value, reglet.L2()(a, b))


def test_sampled_tokens_are_the_same_on_both_sides_and_change_with_the_step() -> None:
    model = nn.Sequential(nn.Identity(), nn.Identity())
    seen: list[Tensor] = []

    def same(z: Tensor, target: Tensor) -> Tensor:
        assert torch.equal(z, target)
        seen.append(z.detach())
        return z.sum()

    link = attach(model, "0", same, to="1", rho=3)
    for _ in range(3):
        model(torch.arange(20.0)[None, :, None].requires_grad_())
        link.loss()
    assert all(z.shape == (1, 3, 1) for z in seen)
    assert len({tuple(z.flatten().tolist()) for z in seen}) == 3


def test_bfloat16_outputs_and_autocast_are_compared_in_float32() -> None:
    model, teacher, x = net().float(), net(1).bfloat16(), tokens().float()
    wrapped = nn.Sequential(nn.Identity(), teacher)
    wrapped[0].forward = lambda x: x.bfloat16()
    kinds: list[torch.dtype] = []

    def loss(z: Tensor, target: Tensor) -> Tensor:
        kinds.extend([z.dtype, target.dtype, (z @ target.mT).dtype])
        return gap(z, target)

    link = attach(model, "blocks.1", loss, teacher=wrapped, to="1.blocks.3")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(x)
        link.loss().backward()
    assert kinds == [torch.float32] * 3


def test_what_does_not_go_together() -> None:
    model, x = net(), tokens()
    for where, to in (({"from": "blocks.0"}, None), ({"from": "blocks.0", "to": "blocks.1"}, "blocks.3")):
        with pytest.raises(ValueError, match=r'two places are \{"from": ..., "to": ...\}'):
            attach(model, where, gap, to=to)
    with pytest.raises(ValueError, match=r"go with to="):
        attach(model, "blocks.0", gap, teacher=net(1))
    with pytest.raises(ValueError, match="a teacher is frozen, so stop is 'to'"):
        attach(model, "blocks.0", gap, teacher=net(1), to="blocks.0", stop=None)
    with pytest.raises(Exception, match="stop"):
        attach(model, "blocks.0", gap, to="blocks.1", stop="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one by one, or all with one: got 3 to compare.*with 2"):
        attach(model, "blocks.[013]", gap, to="blocks.[01]")
    with pytest.raises(ValueError, match=r"block 'blocks\.0' would be compared with itself"):
        attach(model, "blocks.0", gap, to="blocks.0")
    with pytest.raises(ValueError, match="SIGReg regularizes features of one place: leave to= out"):
        attach(model, "blocks.0", reglet.SIGReg(), to="blocks.1")
    with pytest.raises(ValueError, match="are not for SIM"):
        attach(model, "blocks.0", reglet.SIM(), to="blocks.1", rho=0.5)
    with pytest.raises(LookupError, match=r"no module matches 'layer4'"):
        attach(model, "blocks.0", gap, teacher=net(1), to="layer4")
    with pytest.raises(ValueError, match="two layouts are for two places"):
        attach(model, "blocks.0", gap, on="tokens", layout=(Layout(), Layout()))
    first = attach(model, "blocks.0", gap, to="blocks.1", name="a")
    with pytest.raises(ValueError, match=r"'blocks\.1' already has an attachment named 'a'"):
        attach(model, "blocks.1", gap, to="blocks.3", name="a")
    first.remove()
    half = attach(model, "blocks.0", gap, teacher=nn.Sequential(nn.Linear(6, 8).double()), to="0")
    half._teacher.network.register_forward_pre_hook(lambda _m, args: (args[0][:2],))  # type: ignore[union-attr]
    model(x)
    with pytest.raises(ValueError, match=r"blocks\.0->0.*4 samples are compared with 2"):
        half.loss()


def step(rank: int, world: int) -> dict[str, Any]:
    """Gradients of the model and of the heads, on this rank's part of the batch."""
    found: dict[str, Any] = {}
    for name in ("cosine", "cka", "sim"):
        x = tokens(8)[rank * 8 // world : (rank + 1) * 8 // world]
        model = net()
        loss = reglet.CKA(gather=True) if name == "cka" else TWO[name]()
        link = linked(model, loss, taught=True, example=x)
        wrapped = DistributedDataParallel(model, find_unused_parameters=False) if world > 1 else model
        (wrapped(x).square().mean() + link.loss()).backward()
        found[name] = [p.grad for p in [*model.parameters(), *link.parameters()]]
    return found


def test_two_ranks_train_as_one_process_on_the_whole_batch(tmp_path: Path) -> None:
    alone = step(0, 1)
    for one in ranks.run("tests.attach.test_two_places:step", world=2, folder=tmp_path):
        for name, expected in alone.items():
            torch.testing.assert_close(one[name], expected)


COMPILE = """
import torch
from torch import nn
import reglet

def net(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 5)).double()

x = torch.randn(4, 9, 6, dtype=torch.float64)

def grads(compiled, taught):
    model = net(0)
    if taught:
        link = reglet.attach(model, "2", reglet.Cosine(), teacher=net(1), to="3", example=x)
    else:
        link = reglet.attach(model, {"from": "0", "to": "3"}, reglet.Cosine(), example=x)
    run = torch.compile(model, backend="aot_eager") if compiled else model
    for _ in range(3):
        model.zero_grad()
        loss = run(x).square().mean() + link.loss()
        loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters()), *(p.grad for p in link.parameters())]

for taught in (False, True):
    for a, b in zip(grads(True, taught), grads(False, taught), strict=True):
        torch.testing.assert_close(a, b)
print("ok")
"""


def test_compile() -> None:
    """In a process of its own: the shape checker of the test run is no part of what is compiled."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", COMPILE], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr
