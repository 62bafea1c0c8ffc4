"""Memory of the sliced losses: what they need beyond their input does not grow with the number of slices."""

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import memory
from benchmarks.peers import lightly_losses
from benchmarks.rows import Row, at_most
from benchmarks.subjects import Loss, subject
from benchmarks.timing import Step, forward_backward

SHAPE = (4, 256, 256)
FEW, MANY, USUAL = 256, 8192, 4096
GROWTH = 1.10


def run() -> Iterator[Row]:
    if not memory.available():
        print("memory: this kernel does not let a process reset its high-water mark; skipped")
        return
    v, n, d = SHAPE
    yield Row("calibration", f"{memory.CALIBRATION >> 20} MB held", "measured over true", memory.calibrate())
    for name in ("VISReg", "SIGReg"):
        size = f"v {v}, n {n}, d {d}"
        few, many = (memory.peak(f"benchmarks.loss_memory:{name.lower()}", k) for k in (FEW, MANY))
        growth = many / few
        yield at_most(
            name, size, "peak memory over", growth, GROWTH, against=f"K {FEW}, at {MANY}", low=growth, high=growth
        )
        yield Row(name, size, "peak MB", many / 2**20, against=f"at K {MANY}")
        if lightly_losses() is not None:
            usual, peer = (memory.peak(f"benchmarks.loss_memory:{name.lower()}{of}", USUAL) for of in ("", "_lightly"))
            yield Row(name, size, "times less than", peer / usual, against=f"lightly, K {USUAL}")


def _step(loss: Loss) -> Step:
    torch.manual_seed(0)
    return forward_backward(lambda z: loss(z, 2), torch.randn(SHAPE))


def _ours(name: str, slices: int) -> Step:
    one = subject(name, slices=slices)
    return _step(one.ours(one.make()))


def _lightly(name: str, slices: int) -> Step:
    one, losses = subject(name, slices=slices), lightly_losses()
    assert one.peer is not None
    assert losses is not None
    return _step(one.peer(losses))


visreg, sigreg = partial(_ours, "VISReg"), partial(_ours, "SIGReg")
visreg_lightly, sigreg_lightly = partial(_lightly, "VISReg"), partial(_lightly, "SIGReg")
