"""What SIM costs: a training step with it over the same step without it, in time and in memory.

A step is forward, cross-entropy, backward and SGD with momentum, on 64 images of 32 pixels, with SIM as it comes
(rho = 0.2) on every block.  The paper's table 11 has 1.11, 1.18 and 1.04 for the time of ResNet-18, ResNet-50 and Swin.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks import memory
from benchmarks.rows import Row, at_most, lines
from benchmarks.timing import Clock, Step, interleave
from reglet.attach import attach
from reglet.backbones.resnet import resnet18, resnet50
from reglet.blocks import SIM

BATCH, PIXELS, CLASSES = 64, 32, 10
MEMORY = 1.05


class ViT(nn.Module):
    """ViT-Tiny on 4 x 4 patches: 64 tokens, width 192, 12 layers, 3 heads, in plain torch."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 4, stride=4)
        self.places = nn.Parameter(0.02 * torch.randn(1, (PIXELS // 4) ** 2, 192))
        self.blocks = nn.Sequential(*(self._layer() for _ in range(12)))
        self.head = nn.Sequential(nn.LayerNorm(192), nn.Linear(192, CLASSES))

    @staticmethod
    def _layer() -> nn.TransformerEncoderLayer:
        return nn.TransformerEncoderLayer(
            192, 3, 768, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2).contiguous() + self.places
        logits: Tensor = self.head(self.blocks(tokens).mean(1))
        return logits


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]
    blocks: str
    target: float  # of the time


CASES = (
    Case("ResNet-18", lambda: resnet18(stem="cifar", num_classes=CLASSES), "layer*.*", 1.08),
    Case("ResNet-50", lambda: resnet50(stem="cifar", num_classes=CLASSES), "layer*.*", 1.12),
    Case("ViT-Tiny", ViT, "blocks.*", 1.06),
)


def step(case: Case, *, sim: bool) -> Step:
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, 3, PIXELS, PIXELS), torch.randint(CLASSES, (BATCH,))
    model = case.build()
    attached = attach(model, case.blocks, SIM(dim="sqrt"), example=x[:2]) if sim else None
    parameters = [*model.parameters(), *(attached.parameters() if attached else ())]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def train() -> None:
        loss = nn.functional.cross_entropy(model(x), y)
        if attached is not None:
            loss = loss + 5e-3 * attached.loss()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return train


def without(number: int) -> Step:
    return step(CASES[number], sim=False)


def with_sim(number: int) -> Step:
    return step(CASES[number], sim=True)


def run(*, budget: float = 120.0, clock: Clock = time.perf_counter) -> Iterator[Row]:
    """`budget`: seconds at most for the time of one network, once each contestant ran seven times."""
    for number in range(len(CASES)):
        yield from measure(number, budget=budget, clock=clock)


def measure(number: int, *, budget: float, clock: Clock) -> Iterator[Row]:
    case = CASES[number]
    upper = partial(at_most, case.name, f"batch {BATCH}, {PIXELS} px", against="no SIM")
    row = partial(Row, case.name, f"batch {BATCH}, {PIXELS} px")
    steps = {"with": step(case, sim=True), "without": step(case, sim=False)}
    rounds = interleave(steps, precision=0.005, budget=budget, clock=clock)
    ratio, seconds = rounds.ratio("with", "without"), rounds.median("with")
    yield upper("step time over", ratio.median, case.target, low=ratio.low, high=ratio.high)
    if memory.available():
        more, less = (memory.peak(f"benchmarks.sim:{which}", number) for which in ("with_sim", "without"))
        yield upper("step memory over", more / less, MEMORY, low=more / less, high=more / less)
        yield row("peak MB", more / 2**20)
    yield row("ms", 1e3 * seconds.median, low=1e3 * seconds.low, high=1e3 * seconds.high)


if __name__ == "__main__":
    for line in lines(run()):
        print(line, flush=True)
