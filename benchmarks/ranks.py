"""Two real processes with different data, against one process with all of it."""

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist
from tests.ranks import run
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.agreement import Size, embeddings
from benchmarks.deviation import Deviation, Result, deviation
from benchmarks.subjects import Subject, subjects

WORLD = 2
JOB = "REGLET_BENCHMARK_RANKS"  # size and slices, for the children


def on_ranks(*, size: Size, count: int) -> dict[str, Deviation]:
    """Value and parameter gradient of a layer under DDP, gather=True, ranks with unequal numbers of samples."""
    with tempfile.TemporaryDirectory() as folder:
        job = json.dumps({"size": asdict(size), "count": count})
        found = run("benchmarks.ranks:work", world=WORLD, folder=Path(folder), environment={JOB: job})[0]
    return {one.name: deviation(found[one.name], _alone(one, size)) for one in subjects(count)}


def work(rank: int, world: int) -> dict[str, Result]:
    job = json.loads(os.environ[JOB])
    size = Size(**job["size"])
    cut = size.n // 3
    mine = embeddings(size, 0)[:, :cut] if rank == 0 else embeddings(size, 0)[:, cut:]
    return {one.name: _together(one, mine, size) for one in subjects(job["count"])}


def _together(subject: Subject, mine: Tensor, size: Size) -> Result:
    layer = DistributedDataParallel(_layer(size.d))
    value = subject.ours(subject.make(gather=True))(layer(mine), size.n_global)
    value.backward()
    mean = value.detach().clone() / WORLD  # ranks with slices of their own have values of their own
    dist.all_reduce(mean)
    return Result(mean.double(), _gradient(layer))


def _alone(subject: Subject, size: Size) -> Result:
    """The whole batch in this process: the mean of the losses with the slices of each rank."""
    layer = _layer(size.d)
    z = layer(embeddings(size, 0))
    values: list[Tensor] = []
    for rank in range(WORLD):
        with patch("reglet.losses.slices.rank", lambda rank=rank: rank):
            values.append(subject.ours(subject.make())(z, size.n_global))
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
