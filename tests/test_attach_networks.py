"""SIM on networks that nobody here wrote, and on the kinds of network that everybody writes."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reglet.attach import attach
from reglet.blocks import SIM

PIXELS = 64


@dataclass
class Network:
    build: Callable[[], nn.Module]
    where: str | list[str]
    count: int  # of blocks that `where` must find
    shape: tuple[int, ...] = (4, 3, PIXELS, PIXELS)
    sim: dict[str, Any] = field(default_factory=dict)

    def input(self) -> Tensor:
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(7))


class Recurrent(nn.Module):
    """LSTMs of changing width; each puts out a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 12)
        self.rnn = nn.ModuleList([nn.LSTM(a, b, batch_first=True) for a, b in ((12, 16), (16, 16), (16, 24))])
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for rnn in self.rnn:
            x, _ = rnn(x)
        return self.head(x[:, -1])


class Convolutions1d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(2, 16, 7, padding=3)
        sizes = ((16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 48, 2))
        self.blocks = nn.Sequential(*(self._block(*size) for size in sizes))
        self.head = nn.Linear(48, 5)

    @staticmethod
    def _block(c_in: int, c_out: int, stride: int) -> nn.Sequential:
        conv = nn.Conv1d(c_in, c_out, 3, stride=stride, padding=1)
        return nn.Sequential(conv, nn.BatchNorm1d(c_out), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean(2))


class Up(nn.Module):
    """Two inputs, of different grids: from below, and across."""

    def __init__(self, c_below: int, c_across: int, c_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_below + c_across, c_out, 3, padding=1)

    def forward(self, below: Tensor, across: Tensor) -> Tensor:
        grown = nn.functional.interpolate(below, scale_factor=2)
        return torch.relu(self.conv(torch.cat([grown, across], 1)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.ModuleList(
            [nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in ((8, 16), (16, 32))]
        )
        self.up = nn.ModuleList([Up(32, 16, 16), Up(16, 8, 8)])
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        maps = [torch.relu(self.stem(x))]
        for down in self.down:
            maps.append(down(maps[-1]))
        y = maps.pop()
        for up in self.up:
            y = up(y, maps.pop())
        return self.head(y)


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(
        nn.Linear(6, 32), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(32, 5)
    )


PLAIN = {
    "transformer": Network(transformer, "1.layers.*", 3, (4, 20, 6)),
    # sqrt(16) = 4 ReLUs in a row can all be off at the start, and here they are: such a head learns nothing.
    "lstm": Network(Recurrent, "rnn.*", 3, (4, 20, 6), {"dim": 8}),
    "conv1d": Network(Convolutions1d, "blocks.*", 4, (4, 2, 64), {"channel_dim": 1}),
    "unet": Network(UNet, ["down.*", "up.*"], 4),
}
SWIN = {"img_size": PIXELS, "window_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}
LAST = {"zero_init_last": False}  # otherwise the residual branches are zero at the start, and so are their gradients
TIMM: dict[str, tuple[str, dict[str, Any], str, int, dict[str, Any]]] = {
    "resnet18": ("resnet18", LAST, "layer*.*", 8, {}),
    "resnet50": ("resnet50", LAST, "layer*.*", 16, {}),
    "densenet": ("densenet121", {}, "features.denseblock*", 4, {}),
    "convnext": ("convnext_atto", {}, "stages.*.blocks.*", 12, {}),
    "swin": ("swin_tiny_patch4_window7_224", SWIN, "layers.*.blocks.*", 4, {"channel_dim": -1}),
    "vit": ("vit_tiny_patch16_224", {"img_size": PIXELS, "depth": 4}, "blocks.*", 4, {"skip_tokens": 1}),
    "efficientnet": ("efficientnet_b0", {}, "blocks.*.*", 16, {}),
    "mobilenetv3": ("mobilenetv3_small_050", {}, "blocks.*.*", 12, {}),
    "mixer": ("mixer_s16_224", {"img_size": PIXELS}, "blocks.*", 8, {}),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors: on a busy machine threads would wait for each other most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=[*TIMM, *PLAIN])
def network(request: pytest.FixtureRequest) -> Network:
    if request.param in PLAIN:
        return PLAIN[request.param]
    timm: ModuleType = request.getfixturevalue("timm")
    name, options, where, count, sim = TIMM[request.param]
    return Network(partial(timm.create_model, name, pretrained=False, num_classes=5, **options), where, count, sim=sim)


def made(network: Network) -> nn.Module:
    torch.manual_seed(0)
    return network.build().train()


def seeded(model: nn.Module, x: Tensor) -> Tensor:
    """Dropout and stochastic depth alike in every call."""
    torch.manual_seed(1)
    return model(x)


def with_gradient(model: nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if p.grad is not None}


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from tensors(inner)


def upstream(model: nn.Module, blocks: list[str], x: Tensor) -> set[str]:
    """The parameters that the outputs of `blocks` depend on: torch's own hooks and autograd, nothing of reglet."""
    outputs: list[Tensor] = []
    for name in blocks:
        model.get_submodule(name).register_forward_hook(lambda _m, _x, y: outputs.append(next(tensors(y)).clone()))
    seeded(model, x)
    names, parameters = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(sum(y.square().sum() for y in outputs), parameters, allow_unused=True)
    return {name for name, g in zip(names, grads, strict=True) if g is not None}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_loss_gradient_and_removal(network: Network) -> None:
    model, x = made(network), network.input()
    bare = deepcopy(model)
    sim = attach(model, network.where, SIM(**network.sim), example=x[:2])
    assert len(sim.blocks) == network.count
    assert equal(model.state_dict(), bare.state_dict())

    out = seeded(model, x)
    assert torch.equal(out, seeded(bare, x))
    assert equal(model.state_dict(), bare.state_dict())
    loss = sim.loss()
    assert torch.isfinite(loss)
    assert loss > 0

    loss.backward()
    expected = upstream(deepcopy(bare), sim.blocks, x)
    assert with_gradient(model) == expected
    assert expected < {name for name, _ in model.named_parameters()}  # the classifier is not among them
    flat = [name for name, p in model.named_parameters() if name in expected and p.ndim > 1 and not p.grad.any()]
    assert flat == []
    heads = sim.heads
    assert len(heads) == network.count
    assert [n for n, p in heads.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []
    assert [n for n, p in heads.named_parameters() if p.ndim > 1 and not p.grad.any()] == []

    sim.remove()
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())
    assert torch.equal(seeded(model, x), seeded(bare, x))
    assert equal(model.state_dict(), bare.state_dict())
    assert torch.equal(model.eval()(x), bare.eval()(x))


def test_the_target_is_cut(network: Network) -> None:
    """With every block cut off from its input, SIM's gradient can leave a block through the target only."""
    model, x = made(network), network.input()
    sim = attach(model, network.where, SIM(**network.sim), example=x[:2])

    def cut(_block: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(a.detach() if isinstance(a, Tensor) else a for a in args)

    for name in sim.blocks:  # after SIM's own hook, which sees the input with its graph
        model.get_submodule(name).register_forward_pre_hook(cut)
    seeded(model, x)
    sim.loss().backward()
    inside = {f"{b}.{p}" for b in sim.blocks for p, _ in model.get_submodule(b).named_parameters()}
    assert with_gradient(model) <= inside
    assert all(any(name.startswith(f"{block}.") for name in with_gradient(model)) for block in sim.blocks)


def test_eval_is_as_without(network: Network) -> None:
    model, x = made(network), network.input()
    bare = deepcopy(model).eval()
    sim = attach(model, network.where, SIM(**network.sim), example=x[:2])
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(x), bare(x))
    assert torch.equal(model(x), bare(x))
    assert sim.loss() == 0
