"""Two real processes with different data, against one process with all of it."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.agreement import Size, embeddings
from benchmarks.deviation import Deviation, Result, deviation
from benchmarks.subjects import Subject, subjects

WORLD = 2


@dataclass(frozen=True)
class Job:
    size: Size
    count: int
    seed: int
    folder: str


def on_ranks(*, size: Size, count: int, seed: int = 0) -> dict[str, Deviation]:
    """Value and parameter gradient of a layer under DDP, gather=True, ranks with unequal numbers of samples."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(size, count, seed, folder)
        spawn(_rank, args=(job,), nprocs=WORLD)
        found: dict[str, Result] = torch.load(Path(folder) / "found.pt", weights_only=False)
    return {subject.name: deviation(found[subject.name], _alone(subject, job)) for subject in subjects(count)}


def _rank(rank: int, job: Job) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{job.folder}/store", rank=rank, world_size=WORLD)
    cut = job.size.n // 3
    mine = embeddings(job.size, job.seed)[:, :cut] if rank == 0 else embeddings(job.size, job.seed)[:, cut:]
    found = {}
    for subject in subjects(job.count):
        layer = DistributedDataParallel(_layer(job.size.d))
        value = subject.ours(subject.make(gather=True))(layer(mine), job.size.n_global)
        value.backward()
        mean = value.detach().clone() / WORLD  # ranks with slices of their own have values of their own
        dist.all_reduce(mean)
        found[subject.name] = Result(mean.double(), _gradient(layer))
    if rank == 0:
        torch.save(found, Path(job.folder) / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


def _alone(subject: Subject, job: Job) -> Result:
    """The whole batch in this process: the mean of the losses with the slices of each rank."""
    layer = _layer(job.size.d)
    z = layer(embeddings(job.size, job.seed))
    values: list[Tensor] = []
    for rank in range(WORLD):
        with patch("reglet.losses.slices.rank", lambda rank=rank: rank):
            values.append(subject.ours(subject.make())(z, job.size.n_global))
    value = torch.stack(values).mean()
    value.backward()
    return Result(value.detach().double(), _gradient(layer))


def _layer(d: int) -> nn.Linear:
    layer = nn.Linear(d, d)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(d, d, generator=g) / d**0.5)
        layer.bias.zero_()
    return layer


def _gradient(layer: nn.Module) -> Tensor:
    return torch.cat([p.grad.reshape(-1) for p in layer.parameters() if p.grad is not None]).double()
