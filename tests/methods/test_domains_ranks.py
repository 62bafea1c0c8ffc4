"""Two real processes: each has the loss of its own samples, and GroupDRO's weights are the same on both."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.methods.nets import DIM, Net
from tests.ranks import run
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from reglet.latent import LatentDR
from reglet.method import Batch
from reglet.methods.domains import IRM, Batches, Domains, GroupDRO, OnUnion
from reglet.types import total

NAMES = ("latentdr", "irm", "groupdro")
DOMAIN = torch.arange(24) // 8


def method(name: str) -> Domains:
    torch.manual_seed(3)
    made: dict[str, Any] = {
        "latentdr": lambda: OnUnion(LatentDR(DIM, dropout=0.0)),
        "irm": lambda: IRM(anneal=0),
        "groupdro": lambda: GroupDRO(domains=3, eta=0.5),
    }
    return Domains(Net(), made[name](), classes=3).double()


def batch(part: slice) -> Batch:
    index = Batches(DOMAIN, per_domain=4).indices(0)[part]
    images = torch.randn(24, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Batch([images[index]], 1, index % 3, DOMAIN[index])


def gradient(m: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in m.parameters()])


def work(rank: int, world: int) -> dict[str, Any]:
    found = {}
    for name in NAMES:
        m = method(name)
        parallel = DistributedDataParallel(m)
        terms = parallel(batch(slice(6 * rank, 6 * rank + 6)))
        total(terms).backward()
        found[name] = ({k: v.item() for k, v in terms.items()}, gradient(m), dict(m.loss.named_buffers()))
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    return run("tests.methods.test_domains_ranks:work", world=2, folder=folder)


@pytest.mark.parametrize("name", ["latentdr", "irm"])
def test_each_rank_has_the_loss_of_its_own_samples(ranks: list[dict[str, Any]], name: str) -> None:
    own, grads = [], []
    for rank in range(2):
        m = method(name)
        own.append(m(batch(slice(6 * rank, 6 * rank + 6))))
        total(own[-1]).backward()
        grads.append(gradient(m))
    assert not torch.allclose(total(own[0]), total(own[1]))
    for rank, found in enumerate(ranks):
        terms, grad, _ = found[name]
        assert terms == {k: pytest.approx(v.item(), rel=1e-10) for k, v in own[rank].items()}
        torch.testing.assert_close(grad, (grads[0] + grads[1]) / 2)


def test_groupdro_weighs_the_domains_alike_on_all_ranks(ranks: list[dict[str, Any]]) -> None:
    """As one process does on the whole batch, whose risks are the means of the ranks'."""
    m = method("groupdro")
    total(m(batch(slice(None)))).backward()
    for found in ranks:
        _, grad, buffers = found["groupdro"]
        torch.testing.assert_close(buffers["q"], m.loss.q)
        torch.testing.assert_close(grad, gradient(m))
