"""compile=true on a CPU: the time of a whole step without it over that with it, and what the first step takes.

`python -m benchmarks --only compiled`.  VISReg on two views, AdamW, as `reglet pretrain` trains; the graph breaks are
held by tests/engine/test_compile.py.
"""

import time
from collections.abc import Iterator

import torch

from benchmarks.rows import Row
from benchmarks.timing import Step, interleave
from reglet import VISRegLoss
from reglet.backbones import build, projector
from reglet.backbones.protocol import dim_of
from reglet.engine.launch import launch
from reglet.engine.settings import Settings
from reglet.engine.state import State
from reglet.method import Batch
from reglet.methods import JointEmbedding

SIZE, BATCH = 32, 64


def run(*, budget: float = 20.0) -> Iterator[Row]:
    """`budget`: seconds at most for one network, once each contestant ran five times."""
    for name in ("convnet_deep", "vit_tiny"):
        where = f"compile=true, {name}", f"{SIZE} px, batch {BATCH}"
        start = time.perf_counter()
        compiled = step(name, compiled=True)
        compiled()
        yield Row(*where, "seconds of the first step", time.perf_counter() - start)
        steps: dict[str, Step] = {"without": step(name, compiled=False), "with": compiled}
        rounds = interleave(steps, least=5, budget=budget)
        ratio = rounds.ratio("without", "with")
        yield Row(*where, "times faster than", ratio.median, against="without", low=ratio.low, high=ratio.high)
        for each in steps:
            ms = rounds.median(each, scale=1000)
            yield Row(*where, "ms a step", ms.median, against=each, low=ms.low, high=ms.high)


def step(name: str, *, compiled: bool) -> Step:
    torch.manual_seed(0)
    backbone = build(name, size=SIZE)
    settings = Settings(accelerator="cpu", batch=BATCH, compile=compiled)
    method = JointEmbedding(backbone, VISRegLoss(slices=256), projector=projector(dim_of(backbone), widths=(256, 128)))
    state = State(launch(settings), method, settings)
    batch = Batch(torch.randn(2, BATCH, 3, SIZE, SIZE).unbind(), 2)

    def one() -> None:
        state.backward(batch, lr=1e-3)
        state.step(1000)

    return one
