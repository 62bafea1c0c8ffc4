"""Two real processes, each with half of the batch, train as one does with all of it."""

import pytest
import torch
from tests.methods.nets import MULTI, NAMES, batch, cut, method, preserved
from tests.ranks import run
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from reglet.method import Method
from reglet.methods.moco import MoCoV3
from reglet.types import total

N, STEPS = 8, 3
EVERY = (*NAMES, "preserved")
Trained = tuple[list[float], dict[str, Tensor]]  # the loss of every step, and the state in the end


def made(name: str) -> Method:
    return preserved() if name == "preserved" else method(name)


def train(name: str, part: slice, *, parallel: bool) -> Trained:
    m = made(name)
    wrapped = DistributedDataParallel(m) if parallel else m
    optimizer = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.5)
    values = []
    for step in range(STEPS):
        optimizer.zero_grad()
        value = total(wrapped(cut(batch(N, sizes=MULTI, seed=step), part)))
        value.backward()
        optimizer.step()
        m.after_step(step + 1, STEPS + 1)
        values.append(value.item())
    return values, m.state_dict()


def work(rank: int, world: int) -> tuple[dict[str, Trained], float]:
    half = N // world
    found = {name: train(name, slice(rank * half, (rank + 1) * half), parallel=True) for name in EVERY}
    equal = MoCoV3(Constant(), projector=nn.Identity(), predictor=nn.Identity())(batch(half))
    return found, equal["contrast"].item()


class Constant(nn.Module):
    dim = 4

    def forward(self, x: Tensor) -> Tensor:
        return x.new_ones(len(x), 4)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Trained], float]]:
    return run("tests.methods.test_ranks:work", world=2, folder=tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", EVERY)
def test_ranks_train_as_one_process(ranks, name: str) -> None:
    values, state = train(name, slice(None), parallel=False)
    start = made(name).state_dict()
    for found, _ in ranks:
        for key, value in state.items():
            torch.testing.assert_close(found[name][1][key], value, rtol=1e-9, atol=1e-12)
    mean = torch.tensor([found[name][0] for found, _ in ranks]).mean(0)
    torch.testing.assert_close(mean, torch.tensor(values), rtol=1e-5, atol=0)
    assert max((state[key] - start[key]).abs().max() for key in state if "backbone." in key) > 1e-3


def test_moco_of_equal_embeddings_counts_the_keys_of_all_ranks(ranks) -> None:
    for _, value in ranks:
        assert value == pytest.approx(4 * 0.2 * torch.tensor(float(N)).log().item(), rel=1e-6)
