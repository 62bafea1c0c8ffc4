"""What a rank computes as the batch is spread over more of them: losses that compare all samples, gather=True.

CPU seconds of one process for a step, forward and backward, on one thread: processes outnumber the cores here, so that
the time on the wall says nothing.  Waiting for other ranks is not counted; sending and receiving is.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch
from tests.ranks import run as on_ranks

from benchmarks.rows import Row, at_most
from benchmarks.subjects import subject

WORLDS = (1, 2, 4)
STEPS = 7
# loss -> samples of the whole batch, features
SIZES = {
    "NTXentLoss": (1024, 512),
    "SMILoss": (1024, 512),
    "BarlowTwinsLoss": (2048, 512),
    "VICRegLoss": (2048, 512),
}


def run() -> Iterator[Row]:
    found = {world: _seconds(world) for world in WORLDS}
    for name, (n, d) in SIZES.items():
        size = f"n {n}, d {d}"
        for world in WORLDS[1:]:
            ratio = found[world][name] / found[1][name]
            measure = f"CPU time of one of {world} ranks over"
            yield at_most(name, size, measure, ratio, 1.0, against="one process", low=ratio, high=ratio)
        yield Row(name, size, "CPU ms, one process", 1e3 * found[1][name])


def _seconds(world: int) -> dict[str, float]:
    """The mean over ranks of each one's median."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = on_ranks("benchmarks.rank_time:work", world=world, folder=Path(folder))
    return {name: sum(rank[name] for rank in ranks) / world for name in SIZES}


def work(rank: int, world: int) -> dict[str, float]:
    return {name: _step(name, n // world, d) for name, (n, d) in SIZES.items()}


def _step(name: str, n: int, d: int) -> float:
    one = subject(name)
    loss = one.ours(one.make(gather=True))
    z = torch.randn(2, n, d, requires_grad=True)
    seconds = []
    for _ in range(STEPS):
        start = time.process_time()
        loss(z, 2).backward()
        seconds.append(time.process_time() - start)
        z.grad = None
    return median(seconds)
