"""What LatentDR costs: a training step with it over the same step with plain cross-entropy.

A step is forward, loss, backward and SGD with momentum, on 96 images of 64 pixels (32 of each of three domains, as in
the paper), ResNet-18 with the ImageNet stem and seven classes, as in PACS.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
from torch import nn

from benchmarks.rows import Row, at_most, lines
from benchmarks.timing import Clock, Step, interleave
from reglet.backbones.resnet import resnet18
from reglet.latent import CrossEntropy, LatentDR

BATCH, PIXELS, CLASSES, DIM = 96, 64, 7, 512
TARGET = 1.03


def step(degrade: Literal["attention", "pool"] | None) -> Step:
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, 3, PIXELS, PIXELS), torch.randint(CLASSES, (BATCH,))
    model, head = resnet18(), nn.Linear(DIM, CLASSES)
    loss = CrossEntropy() if degrade is None else LatentDR(DIM, degrade=degrade)
    parameters = [*model.parameters(), *head.parameters(), *loss.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def train() -> None:
        loss(model(x), y, head).backward()
        optimizer.step()
        optimizer.zero_grad()

    return train


def run(*, budget: float = 60.0, clock: Clock = time.perf_counter) -> Iterator[Row]:
    """`budget`: seconds at most, once each contestant ran five times."""
    size = f"batch {BATCH}, {PIXELS} px"
    steps = {"attention": step("attention"), "pool": step("pool"), "without": step(None)}
    rounds = interleave(steps, precision=0.003, budget=budget, clock=clock)
    for name in ("attention", "pool"):
        upper = partial(at_most, f"LatentDR, {name}", size, against="cross-entropy")
        ratio, seconds = rounds.ratio(name, "without"), rounds.median(name)
        yield upper("step time over", ratio.median, TARGET, low=ratio.low, high=ratio.high)
        yield Row(f"LatentDR, {name}", size, "ms", 1e3 * seconds.median, low=1e3 * seconds.low, high=1e3 * seconds.high)


if __name__ == "__main__":
    for line in lines(run()):
        print(line, flush=True)
