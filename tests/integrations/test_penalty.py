"""Penalty: plain torch, and on two ranks."""

from pathlib import Path

import pytest
import torch
from tests import ranks
from tests.integrations.small import BLOCKS, WEIGHT, X, Y, by_hand, loader, network, same, sim
from torch import nn

from reglet.export import ExportError
from reglet.integrations import Penalty


def penalty_on(net: nn.Module, weight: float | str = WEIGHT) -> Penalty:
    return Penalty(net, BLOCKS, sim(), weight=weight, example=X[:2])


def test_it_is_the_loop_by_hand_to_the_bit() -> None:
    net = network()
    penalty = penalty_on(net)
    optimizer = torch.optim.SGD([*net.parameters(), *penalty.parameters()], lr=0.05, momentum=0.9)
    for x, y in loader():
        penalty(nn.functional.cross_entropy(net(x), y)).backward()
        optimizer.step()
        optimizer.zero_grad()
    other, attached = by_hand()
    same(net, other)
    same(penalty.attachment, attached)
    without, _ = by_hand(weight=0.0)
    assert (next(net[1].parameters()) - next(without[1].parameters())).abs().max() > 1e-3, "it teaches the network"


def test_in_evaluation_nothing_is_added() -> None:
    net = network().eval()
    penalty = penalty_on(net)
    task = net(X[:4]).square().mean()
    assert penalty(task) is task
    with torch.no_grad():
        task = net.train()(X[:4]).square().mean()
        assert penalty(task) is task


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    first, second = penalty_on(network()), penalty_on(network(), weight=WEIGHT)
    with torch.no_grad():
        for p in first.parameters():
            p.add_(1.0)
    first.save(tmp_path / "heads.safetensors")
    second.load(tmp_path / "heads.safetensors")
    same(first, second)
    assert [path.name for path in tmp_path.iterdir()] == ["heads.safetensors"]
    wider = Penalty(network(), "1.0", sim(), weight=1.0, example=X[:2])
    with pytest.raises(ExportError, match="do not fit: extra: "):
        wider.load(tmp_path / "heads.safetensors")
    with pytest.raises(ExportError, match="there are no weights at"):
        wider.load(tmp_path / "nothing.safetensors")


def test_removed_it_leaves_no_trace() -> None:
    net, plain = network(), network()
    penalty_on(net).remove()
    same(net, plain)
    assert torch.equal(net(X[:4]), plain(X[:4]))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_a_wrong_name_says_what_there_is() -> None:
    with pytest.raises(LookupError, match=r"no module matches 'layer\*'. This model has: 0, 1, 1.0, 1.0.conv"):
        Penalty(network(), "layer*", sim(), weight=1.0, example=X[:2])


def drawn_apart(rank: int, world: int) -> list[torch.Tensor]:
    """Heads whose start depends on the global seed, which differs."""
    net = network()
    torch.manual_seed(rank)

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.randn(3))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x - self.a.sum() * y).square().mean()

    penalty = Penalty(net, BLOCKS, Head(), weight=0.1, example=X[:2])
    optimizer = torch.optim.SGD([*net.parameters(), *penalty.parameters()], lr=0.1)
    part = slice(8 * rank, 8 * rank + 8)
    penalty(nn.functional.cross_entropy(net(X[part]), Y[part])).backward()
    optimizer.step()
    return [p.detach() for p in penalty.parameters()]


def test_all_ranks_start_with_the_first_ones_heads(tmp_path: Path) -> None:
    first, second = ranks.run("tests.integrations.test_penalty:drawn_apart", world=2, folder=tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
