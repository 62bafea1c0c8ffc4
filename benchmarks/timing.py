"""Times that can be compared on a machine that others use too: interleaved, and judged round by round.

A round runs every contestant once, one after another, so that a slow second hurts all of them alike; what is reported
is the median over rounds of the ratio within a round.  Rounds go on until that median is known well enough.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

Step = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Ratio:
    """Median over rounds, and the tenth and ninetieth percentile."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Rounds:
    """seconds[name][r]: the time of contestant `name` in round r."""

    seconds: Mapping[str, Sequence[float]]

    def ratio(self, slow: str, fast: str, *, scale: float = 1.0) -> Ratio:
        """scale * time of `slow` / time of `fast`."""
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return spread([scale * a / b for a, b in pairs])

    def median(self, name: str, *, scale: float = 1.0) -> Ratio:
        return spread([scale * seconds for seconds in self.seconds[name]])


def spread(values: Sequence[float]) -> Ratio:
    ordered = sorted(values)
    last = len(ordered) - 1
    return Ratio(statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)])


def interleave(
    steps: Mapping[str, Step],
    *,
    slot: float = 0.1,
    least: int = 5,
    most: int = 60,
    precision: float = 0.02,
    budget: float = 90.0,
    clock: Clock = time.perf_counter,
) -> Rounds:
    """Rounds A B C A B C ..., at least `least` of them.

    A contestant that is quicker than `slot` seconds runs several times a round and is given its median there.  After
    that, until the standard error of every median, relative to it, is below `precision`; or `most` rounds; or `budget`
    seconds.

    clock: the time on the wall.  Where others keep the cores busy, time.process_time with torch on one thread is
    steadier; with more threads it would count those that only wait for one another.
    """
    repeats = {name: max(1, min(50, round(slot / _warm_up(step, clock)))) for name, step in steps.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + budget
    gc.collect()
    gc.disable()
    try:
        for r in range(most):
            if r >= least and (time.perf_counter() > end or _unsteady(seconds) < precision):
                break
            for name, step in steps.items():
                seconds[name].append(statistics.median(_time(step, clock) for _ in range(repeats[name])))
    finally:
        gc.enable()
    return Rounds(seconds)


def forward_backward(loss: Callable[..., Tensor], *inputs: Tensor) -> Step:
    """A step that computes the loss and the gradient of each input, from leaves of its own."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        loss(*leaves).backward()

    return step


def _time(step: Step, clock: Clock) -> float:
    start = clock()
    step()
    return clock() - start


def _warm_up(step: Step, clock: Clock) -> float:
    """Twice, because the first call also pays for libraries and pages."""
    step()
    return _time(step, clock)


def _unsteady(seconds: Mapping[str, Sequence[float]]) -> float:
    """The largest relative standard error of the median ratio of any contestant to the first."""
    first, *others = seconds.values()
    worst = 0.0
    for other in others:
        logs = [math.log(a / b) for a, b in zip(first, other, strict=True)]
        low, _, high = statistics.quantiles(logs, n=4)
        worst = max(worst, 1.2533 * (high - low) / 1.349 / math.sqrt(len(logs)))
    return worst
