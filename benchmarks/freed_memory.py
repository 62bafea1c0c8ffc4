"""What `reglet.keep_freed_memory` gains: a training step with malloc as it is, and with what is freed kept.

malloc cannot be set back, so each speed is measured in a process of its own, the two in turn.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.rows import Row, at_least
from benchmarks.timing import spread

ROUNDS, SECONDS, FASTER = 5, 4.0, 1.0
HOW = ("as it is", "kept")


def run() -> Iterator[Row]:
    for name, size in (("convnet", "batch 256, 32 px"), ("vit_tiny", "batch 64, 32 px")):
        rates = {how: list[float]() for how in HOW}
        for _ in range(ROUNDS):
            for how in HOW:
                words = [sys.executable, "-m", "benchmarks.freed_memory", name, how]
                rates[how].append(float(subprocess.run(words, check=True, capture_output=True, text=True).stdout))
        gain = spread([kept / before for before, kept in zip(*(rates[how] for how in HOW), strict=True)])
        where = f"step of {name}", size
        yield at_least(
            *where, "times faster than", value=gain.median, target=FASTER, low=gain.low, high=gain.high, against=HOW[0]
        )


def steps_a_second(name: str, how: str) -> float:
    import torch

    import reglet
    from reglet.backbones import build

    if how == "kept":
        assert reglet.keep_freed_memory(), "malloc is not glibc's, or the environment has chosen"
    net, loss = build(name, size=32), reglet.VISRegLoss(slices=256)
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.randn(2 * (256 if name == "convnet" else 64), 3, 32, 32)

    def step() -> None:
        optimizer.zero_grad()
        loss(*net(x).chunk(2)).backward()
        optimizer.step()

    for _ in range(3):
        step()
    start, count = time.perf_counter(), 0
    while time.perf_counter() < start + SECONDS:
        step()
        count += 1
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("how", choices=HOW)
    asked = parser.parse_args()
    print(steps_a_second(asked.name, asked.how))
