"""`attach`, `watch` and `alter`: what they find, what they leave alone, what they refuse."""

import pickle
import subprocess
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from reglet.attach import alter, attach, matching, watch
from reglet.attach.attachment import MOST_FORWARDS
from reglet.blocks import SIM
from reglet.types import Scalar


class Block(nn.Module):
    """Overwrites its input, as many networks do."""

    def __init__(self, c_in: int, c_out: int, *, stride: int = 1) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.downsample = nn.Conv2d(c_in, c_out, 1, stride) if (stride, c_in) != (1, c_out) else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(x)
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.bn1(self.conv1(x)) + shortcut


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layer1 = nn.Sequential(Block(8, 8), Block(8, 8))
        self.layer2 = nn.Sequential(Block(8, 12, stride=2), Block(12, 12))
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.layer2(self.layer1(self.stem(x))).mean((2, 3))))


BLOCKS = ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def images(b: int = 4) -> Tensor:
    return torch.randn(b, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def difference(x: Tensor, y: Tensor) -> Scalar:
    """A plain block loss."""
    return (x.mean() - y.mean()).square()


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("layer1.0", ["layer1.0"]),
        ("layer*.*", BLOCKS),
        ("layer?", ["layer1", "layer2"]),
        ("**.conv1", [f"{block}.conv1" for block in BLOCKS]),
        ("layer1.**.relu", ["layer1.0.relu", "layer1.1.relu"]),
        (["layer2.*", "stem"], ["stem", "layer2.0", "layer2.1"]),
        (["layer1.*", "layer1.0"], ["layer1.0", "layer1.1"]),
        (Block, BLOCKS),
        (lambda name, module: name.endswith(".0") and isinstance(module, Block), ["layer1.0", "layer2.0"]),
        ("", [""]),
    ],
)
def test_choosing_blocks(where: Any, found: list[str]) -> None:
    assert list(matching(net(), where)) == found


def test_nothing_matches() -> None:
    with pytest.raises(
        LookupError, match=r"no module matches 'layer1\.2'.*Did you mean 'layer1\.\d'.*has: stem, layer1"
    ):
        matching(net(), "layer1.2")
    with pytest.raises(LookupError, match=r"no module matches 'blocks\.\*'"):
        matching(net(), ["layer1.*", "blocks.*"])
    with pytest.raises(LookupError, match="no module matches LSTM"):
        matching(net(), nn.LSTM)
    with pytest.raises(LookupError, match=r"and 40 more$"):
        matching(nn.Sequential(*(nn.Identity() for _ in range(100))), "x")
    for bad in (3, [], [3]):
        with pytest.raises(Exception, match=r"blocks are chosen by|matching"):
            matching(net(), bad)  # type: ignore[arg-type]


def test_a_module_under_two_names_is_one_block() -> None:
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": shared, "b": shared})
    assert list(matching(model, "*")) == ["a"]
    assert list(matching(model, "b")) == ["b"]


def test_two_lines() -> None:
    model, x = net(), images()
    sim = attach(model, "layer*.*", SIM(), example=x)
    assert sim.blocks == BLOCKS
    optimizer = torch.optim.SGD([*model.parameters(), *sim.parameters()], lr=0.05)
    values = []
    for _ in range(12):
        optimizer.zero_grad()
        value = sim_loss = torch.nn.functional.cross_entropy(model(x), torch.arange(4))
        sim_loss = sim.loss()
        (value + sim_loss).backward()
        optimizer.step()
        values.append(sim_loss.item())
    assert values[-1] < values[0]
    sim.remove()


def test_the_loss_is_the_mean_over_blocks_or_their_sum() -> None:
    model, x = net(), images()
    mean = attach(model, "layer*.*", SIM(), name="mean", example=x)
    total = attach(model, "layer*.*", SIM(reduction="sum"), name="sum", example=x)
    parts = attach(model, "layer*.*", SIM(), name="parts", example=x)
    model(x)
    loss, terms = mean.loss(), parts.terms()
    assert list(terms) == BLOCKS
    torch.testing.assert_close(total.loss(), 4 * loss)
    torch.testing.assert_close(sum(terms.values()), loss)


def test_calls_of_a_block_are_averaged() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    x, z = torch.randn(2, 8, 6), torch.randn(2, 8, 6)
    sim = attach(model, "0", SIM(rho=1.0), example=x)
    model(x)
    first = sim.loss()
    model(z)
    second = sim.loss()
    model(x), model(z)
    torch.testing.assert_close(sim.loss(), (first + second) / 2)


Out = namedtuple("Out", "mask hidden")


class Odd(nn.Module):
    """Outputs of every kind, a shared child that is called twice, a keyword argument, a call within a call."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(6, 6)

    def forward(self, *, features: Tensor, mask: Tensor | None = None, depth: int = 0) -> Any:
        y = self.linear(self.linear(features))
        if self.kind == "nested" and depth == 0:
            y = self(features=y, depth=1)["deep"][0]
        return {
            "tensor": y,
            "tuple": (None, y, y + 1),
            "list": [torch.arange(3), y],
            "dict": OrderedDict(size=3, hidden=y),
            "namedtuple": Out(mask, y),
            "nested": {"deep": (y,)},
        }[self.kind]


class Around(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.odd = Odd(kind)

    def forward(self, x: Tensor) -> Any:
        return self.odd(mask=torch.ones(2, dtype=torch.bool), features=x)


KINDS = ["tensor", "tuple", "list", "dict", "namedtuple", "nested"]


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_of_every_kind(kind: str) -> None:
    x = torch.randn(2, 8, 6)
    model = Around(kind)
    bare = model(x)
    sim = attach(model, ["odd", "odd.linear"], SIM(), example=x)
    out = model(x)
    terms = sim.terms()
    assert set(terms) == {"odd", "odd.linear"}
    assert str(bare) == str(out)
    sum(terms.values()).backward()  # type: ignore[union-attr]
    assert model.odd.linear.weight.grad is not None
    sim.remove()


def test_a_block_that_calls_itself_pairs_each_output_with_its_own_input() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor, inner: bool = False) -> Tensor:
            return 2 * x if inner else self(x + 1, inner=True)

    seen: list[tuple[float, float]] = []

    def loss(x: Tensor, y: Tensor) -> Scalar:
        seen.append((x.item(), y.item()))
        return y.sum()

    model = nn.Sequential(Twice())
    attachment = attach(model, "0", loss)
    model(torch.ones(1, 1, requires_grad=True))
    attachment.loss()
    assert sorted(seen) == [(1.0, 4.0), (2.0, 4.0)]


def test_the_input_is_taken_before_the_block_overwrites_it() -> None:
    """The target of a block that begins with an in-place ReLU is what came in."""

    class Relu(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.relu_()

    model = nn.Sequential(nn.Conv2d(3, 4, 1), Relu())
    sim = attach(model, "1", SIM(dim=None, rho=1.0, loss="mse"), example=images())
    sim.heads["1"].net.predictor = nn.Identity()  # type: ignore[union-attr]
    for size in (8, 6, 6):  # the first call of a size and later ones take it in different ways
        x = model[0](images()[..., :size]).detach()
        model(images()[..., :size])
        torch.testing.assert_close(sim.loss(), (x.relu() - x).square().mean())


def test_a_plain_loss_says_that_its_tensors_were_overwritten() -> None:
    for model, which in (
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True)), "input"),
        (nn.Sequential(nn.Linear(3, 4), nn.Identity(), nn.ReLU(inplace=True)), "output"),
    ):
        attachment = attach(model, "1" if which == "input" else "0", difference)
        model(torch.randn(5, 3))
        with pytest.raises(RuntimeError, match=f"block '[01]': the {which} was modified in place"):
            attachment.loss()


def test_a_plain_loss_gets_input_and_output_with_their_gradients() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    attachment = attach(model, "1", difference)
    assert list(attachment.parameters()) == []
    x = torch.randn(5, 3)
    model(x)
    loss = attachment.loss()
    h = model[0](x)
    torch.testing.assert_close(loss, difference(h, model[1](h)))
    loss.backward()
    assert [p.grad is not None for p in model.parameters()] == [True] * 4 + [False] * 2


def test_a_plain_loss_may_have_parameters() -> None:
    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(4, 4)

        def forward(self, x: Tensor, y: Tensor) -> Scalar:
            return (self.map(y) - x).square().mean()

    model, loss = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), Learned()
    attachment = attach(model, "*", loss)
    assert list(attachment.parameters()) == list(loss.parameters())


def gradients(model: nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}


def test_a_gradient_reaches_what_it_should_and_nothing_else() -> None:
    model, x = net(), images()
    sim = attach(model, "layer1.1", SIM(), example=x)
    model(x)
    sim.loss().backward()
    # the block and all before it; a bias before a normalization, or a shift that standardizing undoes, has none
    expected = {"stem.weight", "stem.bias", "layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.0.bn1.bias",
                "layer1.1.conv1.weight", "layer1.1.bn1.weight", "layer1.1.bn1.bias"}  # fmt: skip
    found = gradients(model)
    assert expected <= found <= expected | {"layer1.0.conv1.bias", "layer1.1.conv1.bias"}
    assert all(p.grad is not None for p in sim.parameters())


def test_heads_are_outside_and_removal_leaves_no_trace() -> None:
    model, x = net(), images()
    state = deepcopy(model.state_dict())
    model.eval()
    bare = model(x)
    sim = attach(model, "layer*.*", SIM(match="shortcut"), example=x)
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), state.values(), strict=True))
    assert torch.equal(model(x), bare)
    sim.remove()
    assert torch.equal(model(x), bare)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert not {"sim", "sim_head", "sim_tap"} & set(vars(model))


def train(model: Net, *, sim: bool, steps: int = 3) -> list[Tensor]:
    """Logits of each step; the SIM loss is asked for but has no weight."""
    torch.manual_seed(3)
    attachment = attach(model, "layer*.*", SIM(), example=images()) if sim else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    logits = []
    for _ in range(steps):
        out = model(images())
        loss = out.square().mean()
        if attachment is not None:
            loss = loss + 0.0 * attachment.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logits.append(out.detach())
    return logits


def test_a_model_with_dropout_trains_on_the_same_random_numbers() -> None:
    with_sim, without = train(net(), sim=True), train(net(), sim=False)
    assert all(torch.equal(a, b) for a, b in zip(with_sim, without, strict=True))


def test_the_first_forward_without_an_example_draws_no_global_random_numbers_either() -> None:
    model = net()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    torch.manual_seed(3)
    state = torch.get_rng_state()
    sim = attach(model, "layer*.*", SIM())
    model(images())
    assert sim.loss() > 0
    assert torch.equal(torch.get_rng_state(), state)


def test_an_example_changes_no_statistics_and_no_modes() -> None:
    model, x = net(), images()
    model.layer1.eval()
    modes, state = [m.training for m in model.modules()], deepcopy(model.state_dict())
    for example in (x, (x,), {"x": x}):
        attach(model, "layer*.*", SIM(), example=example).remove()
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), state.values(), strict=True))


def test_an_example_that_fails_leaves_nothing_behind() -> None:
    model = net()
    with pytest.raises(RuntimeError):
        attach(model, "layer*.*", SIM(), example=torch.randn(2, 4, 8, 8))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(m.training for m in model.modules())


def test_parameters_before_there_are_any() -> None:
    model = net()
    sim = attach(model, "layer*.*", SIM())
    with pytest.raises(RuntimeError, match=r"heads of layer1\.0.*do not exist yet.*example=x"):
        sim.parameters()
    model(images())
    assert sum(1 for _ in sim.parameters()) == 8 * 4


def test_eval_costs_nothing_and_gives_zero() -> None:
    model, x = net(), images()
    sim = attach(model, "layer*.*", SIM(), example=x)
    model.eval()
    with FlopCounterMode(display=False) as bare:
        deepcopy(model)(x)
    with FlopCounterMode(display=False) as attached:
        model(x)
    assert attached.get_total_flops() == bare.get_total_flops() > 0
    assert not any(tap.pairs or tap.entered for tap in sim._taps)
    loss = sim.loss()
    assert loss.item() == 0.0
    assert loss.shape == ()
    assert (loss + torch.ones((), requires_grad=True)).requires_grad
    assert sim._forwards == 0


def test_no_grad_costs_nothing() -> None:
    model, x = net(), images()
    sim = attach(model, "layer*.*", SIM(), example=x)
    with torch.no_grad():
        model(x)
        assert not any(tap.pairs or tap.entered for tap in sim._taps)
        assert sim.loss().item() == 0.0
    with torch.inference_mode():
        model(x)
        assert sim.loss().item() == 0.0


def test_an_eval_forward_between_does_not_disturb() -> None:
    model, x = net(), images()
    sim = attach(model, "layer*.*", SIM(), example=x)
    model(x)
    model.eval()(x)
    assert sim.loss() > 0


def test_loss_without_a_forward() -> None:
    model, x = net(), images()
    sim = attach(model, "layer*.*", SIM(), example=x)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no block ran since the last one"):
            sim.loss()
        model(x)
        sim.loss()


def test_a_block_that_did_not_run() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    for allow in (False, True):
        sim = attach(model, "*", SIM(), allow_unused=allow, name=str(allow))
        model[0](torch.randn(8, 6))
        if allow:
            assert list(sim.terms()) == ["0"]
            with pytest.raises(RuntimeError, match="heads of 1 do not exist"):
                sim.parameters()
        else:
            with pytest.raises(RuntimeError, match="did not run: 1"):
                sim.loss()
    other = nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6)))
    other[1].forward = lambda x: x
    with pytest.raises(RuntimeError, match=r"example did not reach 1\.0"):
        attach(other, ["0", "1.0"], SIM(), example=torch.randn(8, 6))


def test_a_forgotten_loss_is_noticed() -> None:
    model, x = nn.Sequential(nn.Linear(6, 6)), torch.randn(8, 6)
    sim = attach(model, "0", SIM(), example=x)
    for _ in range(MOST_FORWARDS):
        model(x)
    with pytest.raises(RuntimeError, match=r"loss\(\) of 'SIM' was not called"):
        model(x)
    sim.clear()
    model(x)


def test_attaching_twice_needs_two_names() -> None:
    model, x = net(), images()
    sim = attach(model, "layer1.*", SIM(), example=x)
    with pytest.raises(ValueError, match=r"'layer1\.1' already has an attachment named 'SIM'"):
        attach(model, "layer1.1", SIM())
    other = attach(model, "layer1.1", SIM(rho=0.5), name="more", example=x)
    attach(model, "layer2.*", SIM(), example=x).remove()
    model(x)
    assert sim.loss() != other.loss()
    sim.remove()
    attach(model, "layer1.1", SIM())


@pytest.mark.parametrize("output", [None, "text", torch.arange(3), (torch.ones(2, dtype=torch.int64),)])
def test_a_block_without_a_tensor_output(output: object) -> None:
    class Mute(nn.Module):
        def forward(self, x: Tensor) -> object:
            return output

    model = nn.Sequential(nn.Linear(4, 4), Mute())
    attach(model, "1", SIM())
    with pytest.raises(TypeError, match=r"block '1': its output \(a .* has no floating-point tensor"):
        model(torch.randn(3, 4))


def test_a_block_without_a_tensor_input() -> None:
    model = nn.Sequential(nn.Embedding(5, 4))
    attach(model, "0", SIM())
    with pytest.raises(TypeError, match=r"block '0': its input \(a .* has no floating-point tensor"):
        model(torch.arange(5)[None])


def test_errors_name_the_block() -> None:
    model = net()
    attach(model, "layer*.*", SIM(rho=40))
    with pytest.raises(ValueError, match=r"block 'layer2\.0': rho=40 tokens were asked for, and there are 16"):
        model(images())


def test_blocks_left_out() -> None:
    model, x = net(), images()
    sim = attach(model, "layer*.*", SIM(match="skip"), example=x)
    assert sim.blocks == ["layer1.0", "layer1.1", "layer2.1"]
    model(x)
    assert list(sim.terms()) == sim.blocks
    alone = attach(model, "layer2.0", SIM(match="skip"), name="alone", example=x)
    model(x)
    with pytest.raises(RuntimeError, match="all chosen blocks are left out"):
        alone.loss()


def test_shortcut_takes_the_output_of_the_blocks_own_shortcut() -> None:
    model, x = net(), images()
    sim = attach(model, "layer2.0", SIM(match="shortcut", dim=None, rho=1.0, loss="mse"), example=x)
    sim.heads["layer2/0"].net.predictor = nn.Identity()  # type: ignore[union-attr]
    statistics = model.layer2[0].bn1.num_batches_tracked.item()
    with watch(model, "layer2.0.bn1").open() as seen:
        model(x)
    torch.testing.assert_close(sim.loss(), seen["layer2.0.bn1"][0].square().mean())  # the output minus its shortcut
    assert model.layer2[0].bn1.num_batches_tracked == statistics + 1
    with pytest.raises(ValueError, match=r"block 'layer2\.0': 8 channels become 12, and there is no child 'shortcut'"):
        attach(model, "layer2.0", SIM(match="shortcut", shortcut="shortcut"), name="other", example=x)


COPIES: dict[str, Callable[[Net], nn.Module]] = {
    "deepcopy": deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "ema": lambda model: AveragedModel(model).module,
}


@pytest.mark.parametrize("how", list(COPIES))
def test_copies_are_free_of_the_attachment(how: str) -> None:
    """Also in the middle of a step, with tensors of a graph in the taps."""
    model, x = net(), images()
    sim = attach(model, "layer*.*", SIM(match="shortcut"), example=x)
    altered = alter(model, "stem", lambda h: h + 1)
    model(x)
    copied = COPIES[how](model)
    sim.loss()
    copied.train()
    copied(x).sum().backward()
    with pytest.raises(RuntimeError, match="no block ran"):
        sim.loss()
    altered.remove()
    torch.manual_seed(0)
    expected = deepcopy(net()).train()
    expected.load_state_dict(copied.state_dict())
    copied.eval(), expected.eval()
    assert torch.equal(copied(x), expected(x))
    again = attach(copied, "layer*.*", SIM(), example=x)
    copied.train()(x)
    assert again.loss() > 0


def test_a_pickle_does_not_need_reglet(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    attach(model, "*", SIM(), example=torch.randn(8, 6))
    torch.save(model, tmp_path / "model.pt")
    code = (
        "import sys; sys.modules['reglet'] = None\n"
        "import torch\n"
        f"model = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)\n"
        "print(tuple(model(torch.randn(2, 6)).shape))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "(2, 6)\n", done.stderr


def test_an_ema_follows_an_attached_model() -> None:
    model, x = net(), images()
    sim = attach(model, "layer*.*", SIM(), example=x)
    ema = AveragedModel(model)
    optimizer = torch.optim.SGD([*model.parameters(), *sim.parameters()], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (model(x).square().mean() + sim.loss()).backward()
        optimizer.step()
        ema.update_parameters(model)
    assert ema.module.state_dict().keys() == model.state_dict().keys()


def test_heads_are_saved_and_loaded_with_the_places_they_are_at() -> None:
    x = images()

    def start() -> tuple[Net, Any]:
        model = net().eval()
        for name in BLOCKS:
            model.get_submodule(name).training = True
        return model, attach(model, "layer*.*", SIM(), example=x)

    model, sim = start()
    for _ in range(2):
        model(x)
        sim.loss()
    other_model, other = start()
    other.load_state_dict(sim.state_dict())
    model(x), other_model(x)
    assert torch.equal(sim.loss(), other.loss())


def test_each_step_looks_at_new_places_and_all_its_forwards_at_the_same() -> None:
    model, x = nn.Sequential(nn.Tanh()), torch.randn(2, 20, 6)
    sim = attach(model, "0", SIM(), example=x)

    def loss(forwards: int) -> float:
        for _ in range(forwards):
            model(x.requires_grad_())
        return sim.loss().item()

    assert len({loss(1) for _ in range(4)}) == 4
    sim.heads["0"].sampler.set_extra_state(torch.tensor(0))  # type: ignore[union-attr,operator]
    once = loss(1)
    sim.heads["0"].sampler.set_extra_state(torch.tensor(0))  # type: ignore[union-attr,operator]
    assert loss(3) == pytest.approx(once, rel=1e-6)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Sequential(Block(8, 8), Block(8, 12, stride=2))
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.0  # a recomputed forward would count twice
            if isinstance(module, nn.ReLU):
                module.inplace = False

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        return self.body(h) if self.reentrant is None else checkpoint(self.body, h, use_reentrant=self.reentrant)  # type: ignore[no-any-return]


def checkpointed(reentrant: bool | None, loss: Callable[[], Any], steps: int = 2) -> list[Tensor]:
    torch.manual_seed(0)
    model, x = Checkpointed(reentrant), images()
    attachment = attach(model, "body.*", loss(), name="it")
    for _ in range(steps):
        model.zero_grad()
        (model(x).square().mean() + attachment.loss()).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("loss", [SIM, lambda: difference])
def test_non_reentrant_checkpointing_gives_the_same_gradients(loss: Callable[[], Any]) -> None:
    bare, saved = checkpointed(None, loss), checkpointed(False, loss)
    assert len(bare) == len(saved) == 12
    for a, b in zip(bare, saved, strict=True):
        torch.testing.assert_close(a, b)


def test_reentrant_checkpointing_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"without gradients: body\.0, body\.1.*use_reentrant=False"):
        checkpointed(True, SIM)


def test_a_forward_under_no_grad_has_no_loss_to_train_on() -> None:
    model, x = net(), images()
    sim = attach(model, "layer*.*", SIM(), example=x)
    with torch.no_grad():
        model(x)
    with pytest.raises(RuntimeError, match="without gradients"):
        sim.loss()


def test_data_parallel_is_refused() -> None:
    model, x = nn.Sequential(nn.Linear(6, 6)), torch.randn(8, 6)
    attach(model, "0", SIM(), example=x)
    model[0]._is_replica = True  # what nn.DataParallel sets on its copies, which share the hooks
    with pytest.raises(RuntimeError, match="DistributedDataParallel"):
        model(x)


COMPILE = """
import torch
from torch import nn
import reglet

def net():
    torch.manual_seed(0)
    block = lambda c: nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(8, c, 3, c // 8, 1))
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), block(8), block(16), nn.Flatten(), nn.Linear(1024, 5)).double()

x = torch.randn(4, 3, 16, 16, dtype=torch.float64)  # a head of two channels may start dead: rounding over eps

def grads(compiled):
    model = net()
    sim = reglet.attach(model, ["1", "2"], reglet.SIM(), example=x)
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    for _ in range(3):  # the places change, the graph does not
        model.zero_grad()
        loss = run(x).square().mean() + sim.loss()
        loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters()), *(p.grad for p in sim.parameters())]

for a, b in zip(grads(True), grads(False), strict=True):
    torch.testing.assert_close(a, b)
from torch._dynamo.utils import counters
assert counters["stats"]["unique_graphs"] == 1, counters

model = net()
compiled = torch.compile(model, backend="aot_eager")
compiled(x)
for attempt in (lambda: reglet.attach(compiled, "*", reglet.SIM()), lambda: reglet.watch(compiled, "**")):
    try:
        attempt()
        raise SystemExit("a compiled model was not refused")
    except RuntimeError as error:
        assert "first, then compile" in str(error), error
late = reglet.attach(model, "1", reglet.SIM())  # the compiled graph has no hook for this
compiled(x)
try:
    late.loss()
    raise SystemExit("a hook that was ignored went unnoticed")
except RuntimeError as error:
    assert "compiled before attach" in str(error), error

inner = net()
inner[1].compile(backend="aot_eager")
try:
    reglet.attach(inner, "1", reglet.SIM())
    raise SystemExit("a compiled block was not refused")
except RuntimeError as error:
    assert "'1' is compiled already" in str(error), error
print("ok")
"""


def test_compile() -> None:
    """In a process of its own: the shape checker of the test run is no part of what is compiled."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", COMPILE], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr


def test_watch_reads_while_open() -> None:
    model, x = net(), images()
    taps = watch(model, ["layer2", "head"])
    with taps.open() as seen:
        model(x), model.eval()(x)
    assert {name: len(h) for name, h in seen.items()} == {"layer2": 2, "head": 2}
    model(x)
    assert len(seen["head"]) == 2
    taps.remove()
    with pytest.raises(RuntimeError, match="'layer2' did not run"), taps.open():
        model(x)


def test_watch_notices_what_has_no_gradient() -> None:
    model = Checkpointed(True)
    with pytest.raises(RuntimeError, match=r"output of 'body\.0' has no gradient"), watch(model, "body.0").open():
        model(images())
    model.reentrant = False
    with torch.no_grad(), watch(model, "body.1").open() as seen:
        model(images())
    assert not seen["body.1"][0].requires_grad


def test_watch_notices_what_was_overwritten() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with pytest.raises(RuntimeError, match="output of '0' was modified in place"), watch(model, "0").open():
        model(torch.randn(5, 3))
    with torch.inference_mode(), watch(model, "1").open() as seen:
        model(torch.randn(5, 3))
    assert len(seen["1"]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_alter_rewrites_in_training_only(kind: str) -> None:
    x = torch.randn(2, 8, 6)
    model = Around(kind)
    taps = watch(model, "odd")
    with taps.open() as seen:
        bare = model(x)
    taps.remove()
    altered = alter(model, "odd", lambda h: 0 * h if kind != "nested" else h + 5)
    taps = watch(model, "odd")
    with taps.open() as changed:
        out = model(x)
    taps.remove()
    assert type(out) is type(bare)
    assert not torch.equal(changed["odd"][-1], seen["odd"][-1])
    model.eval()
    assert str(model(x)) == str(bare)
    altered.remove()
    assert str(model.train()(x)) == str(bare)
    assert not model.odd._forward_hooks


def test_alter_refuses_another_shape_and_no_tensor() -> None:
    model = nn.Sequential(nn.Linear(3, 4))
    change = alter(model, "0", lambda h: h[:, :2])
    with pytest.raises(ValueError, match=r"block '0': the operator made \(5, 2\) of \(5, 4\)"):
        model(torch.randn(5, 3))
    change.remove()

    class Mute(nn.Module):
        def forward(self, x: Tensor) -> None: ...

    mute = nn.Sequential(Mute())
    alter(mute, "0", torch.zeros_like)
    with pytest.raises(TypeError, match="block '0': no floating-point tensor"):
        mute(torch.randn(5, 3))


class Plain(nn.Module):
    """No batch statistics, so that two halves of a batch are the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 12, 3, 2, 1))
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


def step(rank: int, world: int, *, registered: bool, blind: bool = False) -> dict[str, Any]:
    """Gradients of the model and of the heads after the second step, on this rank's part of the batch.

    registered: DDP has the attachment inside.  blind: rank 1 did not run the second block in the second step.
    """
    torch.manual_seed(0)
    x = torch.randn(8, 3, 8, 8, dtype=torch.float64)[rank * 8 // world : (rank + 1) * 8 // world]
    torch.manual_seed(rank)
    model = Plain().double()
    model.load_state_dict({k: torch.full_like(v, 0.1).cumsum(-1).sin() for k, v in model.state_dict().items()})
    sim = attach(model, "body.[02]", SIM(), example=x, allow_unused=blind)
    if registered:
        model.sim = sim
    wrapped = DistributedDataParallel(model, find_unused_parameters=False) if world > 1 else model
    for i in range(2):
        for p in [*model.parameters(), *sim.parameters()]:
            p.grad = None
        out = wrapped(x).square().mean()
        if blind and rank == 1 and i == 1:
            sim._taps[1].clear()
        (out + sim.loss()).backward()
    own = {name: p.grad for name, p in model.named_parameters() if not name.startswith("sim.")}
    return {"model": own, "heads": [p.grad for p in sim.parameters()]}


def every_way(rank: int, world: int) -> dict[str, Any]:
    """One process group for all of them."""
    return {
        "outside": step(rank, world, registered=False),
        "inside": step(rank, world, registered=True),
        "a block not run on one rank": step(rank, world, registered=False, blind=True),
    }


def test_two_ranks_train_as_one_process_on_the_whole_batch(tmp_path: Path) -> None:
    """The model under plain DDP.  The heads are averaged by themselves, or have DDP's average already."""
    alone = step(0, 1, registered=False)
    found = ranks.run("tests.test_attach:every_way", world=2, folder=tmp_path)
    for one in found:
        for how in ("outside", "inside"):
            torch.testing.assert_close(one[how]["model"], alone["model"])
            torch.testing.assert_close(one[how]["heads"], alone["heads"])
    blind = [one["a block not run on one rank"]["heads"] for one in found]
    torch.testing.assert_close(*blind)


def parent() -> tuple[nn.ModuleDict, Tensor]:
    """A module that has a model and its attachment, as a LightningModule would."""
    model, x = net(), images()
    return nn.ModuleDict({"model": model, "sim": attach(model, "layer*.*", SIM(), example=x)}), x


def test_a_module_that_has_the_attachment_has_its_parameters() -> None:
    both, _ = parent()
    inside = {id(p) for p in both.parameters()}
    assert all(id(p) in inside for p in both["sim"].parameters())
    assert sum(1 for _ in both["sim"].parameters()) == 8 * 4
    assert not any("_model" in name or "body" in name for name in both["sim"].state_dict())
    both.double()
    assert all(p.dtype == torch.float64 for p in both["sim"].parameters())


def test_a_state_of_the_attachment_is_saved_and_loaded(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    both, x = parent()
    both["model"](x)
    both["sim"].loss()
    safetensors.save_model(both, str(tmp_path / "both.safetensors"))
    other, _ = parent()
    for p in other.parameters():
        p.data.zero_()
    other.load_state_dict(safetensors.load_file(tmp_path / "both.safetensors"))
    for net_ in (both, other):
        net_["model"].drop.p = 0.0
    assert both["model"](x).equal(other["model"](x))
    assert both["sim"].loss().equal(other["sim"].loss())
    model = net()
    with pytest.raises(RuntimeError, match="do not exist yet"):
        attach(model, "layer*.*", SIM()).load_state_dict(both["sim"].state_dict())


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "inside the model"])
def test_a_copy_of_model_and_attachment_is_attached_to_itself(how: str) -> None:
    both, x = parent()
    model, sim = both["model"], both["sim"]
    model(x)  # in the middle of a step, with tensors of a graph in the taps
    if how == "inside the model":
        model.sim = sim
        copied = deepcopy(model)
        other, other_sim = copied, copied.sim
    else:
        copied = deepcopy(both) if how == "deepcopy" else pickle.loads(pickle.dumps(both))
        other, other_sim = copied["model"], copied["sim"]
    assert sim.loss() > 0
    other.train()(x)
    loss = other_sim.loss()
    loss.backward()
    assert all(p.grad is not None for p in other_sim.parameters())
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(RuntimeError, match="no block ran"):
        sim.loss()
    other_sim.remove()
    other(x)
    with pytest.raises(RuntimeError, match="no block ran"):
        other_sim.loss()


def test_a_copy_of_what_was_removed_stays_removed() -> None:
    both, x = parent()
    both["sim"].remove()
    copied = deepcopy(both)
    copied["model"](x)
    with pytest.raises(RuntimeError, match="no block ran"):
        copied["sim"].loss()


@pytest.mark.parametrize("loss", [SIM, lambda: difference])
def test_a_graph_that_backward_has_freed(loss: Callable[[], Any]) -> None:
    model, x = net(), images()
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    attachment = attach(model, "layer*.*", loss(), name="it", example=x)
    model(x).sum().backward()
    with pytest.raises(RuntimeError, match=r"backward\(\) has run and freed the graph of layer1\.0, .*before it"):
        attachment.loss()
    out = model(x).sum()
    out.backward(retain_graph=True)
    attachment.loss().backward()
    model(x).sum().backward()
    with torch.no_grad():
        assert attachment.loss() >= 0
