"""Accelerate, with the real Accelerator."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from tests.integrations.small import BLOCKS, WEIGHT, X, by_hand, loader, network, same, sim
from torch import nn

from reglet.integrations import Penalty
from reglet.integrations.accelerate import save_with

accelerate = pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("default")


def parts(**given: Any) -> tuple[Any, nn.Module, Penalty, Any, Any]:
    accelerator = accelerate.Accelerator(cpu=True, **given)
    net = network()
    penalty = Penalty(net, BLOCKS, sim(), weight=WEIGHT, example=X[:2])
    optimizer = torch.optim.SGD([*net.parameters(), *penalty.parameters()], lr=0.05, momentum=0.9)
    save_with(accelerator, penalty)
    model, optimizer, batches = accelerator.prepare(net, optimizer, loader(batch=16 // accelerator.num_processes))
    return accelerator, model, penalty, optimizer, batches


def train(accelerator: Any, model: nn.Module, penalty: Penalty, optimizer: Any, batches: Any) -> None:
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(penalty(nn.functional.cross_entropy(model(x), y)))
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("count", [1, 2])
def test_it_is_the_loop_by_hand_to_the_bit(count: int) -> None:
    made = parts(gradient_accumulation_steps=count)
    train(*made)
    net, heads = by_hand(parts=count)
    same(made[0].unwrap_model(made[1]), net)
    same(made[2].attachment, heads)


def test_a_state_that_was_saved_goes_on_with_its_heads(tmp_path: Path) -> None:
    first = parts()
    train(*first)
    first[0].save_state(tmp_path / "half")
    assert (tmp_path / "half" / "reglet.safetensors").exists()
    train(*first)
    second = parts()
    second[0].load_state(tmp_path / "half")
    train(*second)
    same(first[1], second[1])
    same(first[2], second[2])


def on_two_ranks(rank: int, world: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    made = parts()
    train(*made)
    net = made[0].unwrap_model(made[1])
    return [p.detach() for p in net.parameters()], [p.detach() for p in made[2].parameters()]


def test_two_ranks_train_as_one_process(tmp_path: Path) -> None:
    """DDP by Accelerate: the heads are equal on both ranks, and those of one process on the whole batch."""
    first, second = ranks.run("tests.integrations.test_accelerate:on_two_ranks", world=2, folder=tmp_path)
    net, heads = by_hand()
    for part, alone in ((0, net), (1, heads)):
        for a, b, c in zip(first[part], second[part], alone.parameters(), strict=True):
            assert torch.equal(a, b)
            torch.testing.assert_close(a, c.detach(), rtol=1e-4, atol=1e-6)
