"""What patch NT-Xent costs against the dense formula, forward and backward: 24 images of 196 tokens with 512 features.

Dense is the usual code: all scores, a mask of the same image, a cross-entropy.
"""

import time
from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import memory
from benchmarks.rows import Row, at_most, lines
from benchmarks.timing import Clock, Step, forward_backward, interleave
from reglet.blocks.patch_ntxent import patch_ntxent

IMAGES, TOKENS, FEATURES, TAU = 24, 196, 512, 0.3
MEMORY, TIME = 0.25, 1.0


def dense(z: Tensor, target: Tensor) -> Tensor:
    n, t, _ = z.shape
    q, k = (F.normalize(y.flatten(0, 1), dim=1) for y in (z, target))
    s = q @ torch.cat([k, q]).T / TAU
    image = torch.arange(n).repeat_interleave(t)
    positive = torch.arange(n * t)
    masked = (image[:, None] == image[None]).repeat(1, 2)
    masked[positive, positive] = False
    return F.cross_entropy(s.masked_fill(masked, -torch.inf), positive)


def ours(z: Tensor, target: Tensor) -> Tensor:
    return patch_ntxent(z, target, temperature=TAU, symmetric=False)


def tokens(images: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    z = torch.randn(images, TOKENS, FEATURES)
    return z, z + 0.5 * torch.randn_like(z)


def ours_step(images: int) -> Step:
    return forward_backward(ours, *tokens(images))


def dense_step(images: int) -> Step:
    return forward_backward(dense, *tokens(images))


def run(*, budget: float = 60.0, clock: Clock = time.perf_counter) -> Iterator[Row]:
    size = f"{IMAGES * TOKENS} x {FEATURES}"
    upper = partial(at_most, "patch NT-Xent", size, against="dense")
    z = tokens(IMAGES)
    a, b = ours(*z).item(), dense(*z).item()
    yield Row("patch NT-Xent", size, "relative difference", abs(a - b) / b, against="dense")
    steps = {"ours": ours_step(IMAGES), "dense": dense_step(IMAGES)}
    rounds = interleave(steps, budget=budget, clock=clock)
    ratio, seconds = rounds.ratio("ours", "dense"), rounds.median("ours", scale=1e3)
    yield upper("time over", ratio.median, TIME, low=ratio.low, high=ratio.high)
    yield Row("patch NT-Xent", size, "ms", seconds.median, low=seconds.low, high=seconds.high)
    if memory.available():
        less, more = (memory.peak(f"benchmarks.patch_ntxent:{which}_step", IMAGES) for which in ("ours", "dense"))
        yield upper("peak memory over", less / more, MEMORY, low=less / more, high=less / more)
        yield Row("patch NT-Xent", size, "peak MB", less / 2**20)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in lines(run(clock=time.process_time)):
        print(line, flush=True)
