"""SER on two real processes, each with views and elements of its own, trains as one process with all of them."""

import torch
from tests.methods.equivariant_nets import PATCH, base, batch
from tests.ranks import run
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from reglet.blocks.patch_ntxent import patch_ntxent
from reglet.groups import Element, Symmetry, align, relative, transform
from reglet.method import Batch
from reglet.methods.equivariant import Equivariant
from reglet.types import total

N, LAST = 4, 2


def method() -> Equivariant:
    torch.manual_seed(5)
    group = Symmetry(area=None)  # then all grids are 4 x 4, and one process can hold them in one tensor
    return Equivariant(base("vicreg"), fraction=LAST / N, layer=2, width=6, group=group).double()


def of_rank(rank: int) -> Batch:
    return batch(N, share=LAST / N, seed=rank, ranks=1)


def work(rank: int, world: int) -> dict[str, object]:
    m = method()
    wrapped = DistributedDataParallel(m)
    torch.manual_seed(100 + rank)
    terms = wrapped(of_rank(rank))
    total(terms).backward()
    scaled = Equivariant(base("vicreg"), fraction=LAST / N, layer=2, width=6).double()
    torch.manual_seed(300 + rank)
    uneven = scaled(of_rank(rank))["equivariance"]  # grids differ between the ranks
    one = Equivariant(base("vicreg"), fraction=1 / N, layer=2, width=6).double()
    alone = one(batch(N, share=1 / N, seed=rank, ranks=1))["equivariance"]  # one image on each rank
    return {
        "terms": {key: value.item() for key, value in terms.items()},
        "gradients": {path: p.grad for path, p in m.named_parameters()},
        "uneven": uneven.item(),
        "alone": alone.item(),
    }


def in_one_process() -> tuple[Equivariant, dict[str, Tensor]]:
    m, batches = method(), [of_rank(rank) for rank in range(2)]
    elements: list[tuple[Element, Element]] = []
    for rank in range(2):
        torch.manual_seed(100 + rank)
        elements.append(m.group.fitted((16, 16), patch=PATCH).draw_pair(LAST))
    embeddings, z = [], []
    for v in range(2):
        parts = [b.views[v][:-LAST] for b in batches]
        parts += [transform(b.views[v][-LAST:], e[v], patch=PATCH) for b, e in zip(batches, elements, strict=True)]
        x = torch.cat(parts)
        kept: list[Tensor] = []
        handle = m.backbone.blocks[1].register_forward_hook(lambda _, __, y, kept=kept: kept.append(y))
        embeddings.append(m.method.projector(m.backbone(x)))
        handle.remove()
        z.append(m.heads["blocks/1"](kept[0][2 * (N - LAST) :]))
    grid = {"grid": (4, 4), "to": (4, 4)}
    sides = []
    for a, b in ((0, 1), (1, 0)):
        moved = [align(part, relative(e[a], e[b]), **grid) for part, e in zip(z[a].split(LAST), elements, strict=True)]
        sides.append(patch_ntxent(z[b], torch.cat(moved), symmetric=False))
    terms = m.method.objective(embeddings, n_global=2) | {"equivariance": 0.5 * sum(sides) / 2}
    total(terms).backward()
    return m, terms


def test_two_ranks_train_as_one_process(tmp_path) -> None:
    ranks = run("tests.methods.test_equivariant_ranks:work", world=2, folder=tmp_path)
    m, terms = in_one_process()
    for found in ranks:
        for key, value in terms.items():
            torch.testing.assert_close(found["terms"][key], value.item(), rtol=1e-10, atol=0)
        for path, p in m.named_parameters():
            torch.testing.assert_close(found["gradients"][path], p.grad, rtol=1e-8, atol=1e-11)
    assert ranks[0]["uneven"] == ranks[1]["uneven"] > 0
    assert ranks[0]["alone"] == ranks[1]["alone"] > 0
