"""The decorators of Algorithm 1 compute what `attach` computes."""

import pickle
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from reglet.attach import attach
from reglet.blocks import SIM, collect_SIM, forward_with_SIM, init_SIM, sim_loss


class Bare(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(in_channels, out_channels, 3, stride, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.relu(x))


class Block(Bare):
    @init_SIM()
    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__(in_channels, out_channels, stride)

    @forward_with_SIM()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Net(nn.Module):
    sim_loss = sim_loss

    def __init__(self, block: type[Bare]) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 1), block(8, 8), block(8, 12, stride=2), block(12, out_channels=12))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).mean((2, 3))


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_the_same_loss_and_gradients_as_attach() -> None:
    decorated, bare = Net(Block), Net(Bare)
    bare.load_state_dict({k: v for k, v in decorated.state_dict().items() if "sim_head" not in k})
    for sim in {id(m.sim_tap.loss): m.sim_tap.loss for m in decorated.modules() if isinstance(m, Block)}.values():
        sim.sampler.set_extra_state(torch.tensor(0))
    attached = attach(bare, Bare, SIM(), example=images())
    for i in (1, 2, 3):
        attached.heads[f"body/{i}"].load_state_dict(decorated.body[i].sim_head.state_dict())
    out, expected = decorated(images()), bare(images())
    assert torch.equal(out, expected)
    loss = decorated.sim_loss
    torch.testing.assert_close(loss, attached.loss())
    (out.square().mean() + loss).backward()
    assert all(p.grad is not None for p in decorated.parameters())


def test_heads_are_in_the_model_as_in_algorithm_one() -> None:
    model = Net(Block)
    heads = {name.split(".sim_head.")[0] for name, _ in model.named_parameters() if ".sim_head." in name}
    assert heads == {"body.1", "body.2", "body.3"}
    assert sum(p.numel() for p in model.body[1].sim_head.parameters()) == 2 * 16 * 8 + 4 * 16**2 + 5 * 16
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(images())
    model.sim_loss.backward()
    optimizer.step()


def test_blocks_of_a_model_start_with_different_heads_and_look_at_the_same_places() -> None:
    model = Net(Block)
    first, second = model.body[1].sim_head, Net(Block).body[1].sim_head
    assert not torch.equal(first.net.predictor.weight, second.net.predictor.weight)
    assert first.sampler is model.body[3].sim_head.sampler


def test_eval_and_errors() -> None:
    model = Net(Block)
    with pytest.raises(RuntimeError, match="no block ran"):
        _ = model.sim_loss
    model.eval()(images())
    assert model.sim_loss.item() == 0.0
    with pytest.raises(RuntimeError, match=r"no block of this model was decorated"):
        collect_SIM(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="needs attach"):
        init_SIM(SIM(match="shortcut"))


def test_copies_are_models_with_sim_of_their_own() -> None:
    model = Net(Block)
    model(images())
    for copied in (deepcopy(model), pickle.loads(pickle.dumps(model))):
        with pytest.raises(RuntimeError, match="no block ran"):
            _ = copied.sim_loss
        copied(images())
        copied.sim_loss.backward()
        assert copied.body[1].sim_head.net.predictor.weight.grad is not None
    assert model.body[1].sim_head.net.predictor.weight.grad is None
    assert model.sim_loss > 0


def test_channels_by_other_names_or_as_attributes() -> None:
    class Wide(nn.Module):
        @init_SIM(SIM(match="pre"), channels=("planes", "width"))
        def __init__(self, planes: int) -> None:
            super().__init__()
            self.width = 4 * planes
            self.conv = nn.Conv2d(planes, self.width, 1)

        @forward_with_SIM()
        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x)

    block = Wide(4)
    block(torch.randn(2, 4, 8, 8))
    assert collect_SIM(block) > 0

    class Unknown(nn.Module):
        @init_SIM()
        def __init__(self, planes: int) -> None:
            super().__init__()

    with pytest.raises(TypeError, match=r"Unknown\.__init__ has no argument 'in_channels'"):
        Unknown(4)


def test_a_forward_without_its_init() -> None:
    class Half(nn.Module):
        @forward_with_SIM()
        def forward(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(RuntimeError, match=r"Half\.__init__ lacks @init_SIM\(\)"):
        Half()(torch.randn(2, 3))


def test_skip() -> None:
    class Skipping(Bare):
        @init_SIM(SIM(match="skip"))
        def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
            super().__init__(in_channels, out_channels, stride)

        @forward_with_SIM()
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    model = Net(Skipping)
    assert [block.sim_head is None for block in model.body[1:]] == [False, True, False]
    model(images())
    assert model.sim_loss > 0
