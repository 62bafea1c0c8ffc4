"""What a training step of two methods costs, measured in one interleaved run.

Steps take turns, A B A B ..., and the time is the median over rounds of B / A, because a shared machine may change its
speed from second to second.  torch counts the FLOPs of one forward and backward pass.  Memory is what the step holds
(weights, gradients, the optimizer's state) and the peak beside that, by CUDA's counter, or on Linux by the kernel's
record of the process's largest resident memory.
"""

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from reglet import progress
from reglet.engine.build import build_parts
from reglet.engine.config import Config
from reglet.engine.feed import Place
from reglet.engine.launch import launch
from reglet.engine.state import State

ENOUGH = 20.0
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Cost:
    """Of one step with `images` images.  memory: None where it cannot be measured."""

    images: int
    seconds: float
    parameters: int
    flops: int
    memory: int | None


@dataclass(frozen=True)
class Ratio:
    """Candidate over base."""

    time: float
    time_low: float  # the tenth percentile over rounds
    time_high: float  # the ninetieth
    parameters: float
    flops: float
    memory: float | None


def compare_costs(base: Config, candidate: Config, *, rounds: int = 12) -> tuple[Cost, Cost, Ratio]:
    """The costs of two arms, whose steps take turns.  Nothing is written."""
    arms = {"base": _Arm(base), "candidate": _Arm(candidate)}
    for arm in arms.values():
        arm.step()
    seconds = _take_turns({name: arm.step for name, arm in arms.items()}, rounds)
    with progress.work("its FLOPs and memory"):
        costs = [arm.cost(statistics.median(seconds[name])) for name, arm in arms.items()]
    for arm in arms.values():
        arm.close()
    a, b = costs
    ratios = sorted(y / x for x, y in zip(*seconds.values(), strict=True))
    last = len(ratios) - 1
    memory = None if a.memory is None or b.memory is None else b.memory / a.memory
    return a, b, Ratio(
        statistics.median(ratios),
        ratios[round(0.1 * last)],
        ratios[round(0.9 * last)],
        b.parameters / a.parameters,
        b.flops / a.flops,
        memory,
    )  # fmt: skip


def _take_turns(steps: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step.  After `ENOUGH` seconds five rounds are enough."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    since = time.perf_counter()
    for done in progress.track(range(rounds), "what a step costs"):
        if done >= 5 and time.perf_counter() - since > ENOUGH:
            break
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return seconds


class _Arm:
    """A run in memory: the same data, views, network and optimizer as `reglet.train.run` builds."""

    def __init__(self, config: Config) -> None:
        config = replace(config, devices=1, nodes=1, strategy="ddp", resume=False, compile=False)
        parts = build_parts(config)
        self.state = State(launch(config), parts.method, config)
        self.feed = parts.feed
        self.feed.open(Place(self.state.device, channels_last=config.channels_last), steps=0)
        self.batch, self.per_epoch = parts.batch, self.feed.order.per_epoch

    def step(self) -> None:
        self.state.backward(self.feed(self.state.done % self.per_epoch), lr=1e-6)
        self.state.step(1_000_000)
        if self.state.fabric.device.type == "cuda":
            torch.cuda.synchronize()

    def cost(self, seconds: float) -> Cost:
        with FlopCounterMode(display=False) as counter:
            self.state.backward(self.feed(0), lr=0.0)
        parameters = sum(p.numel() for p in self.state.method.parameters())
        return Cost(self.batch, seconds, parameters, counter.get_total_flops(), self._memory())

    def _memory(self) -> int | None:
        if self.state.fabric.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self.step()
            return torch.cuda.max_memory_allocated()
        peaks = [_peak(self.step) for _ in range(3)]
        known = [peak for peak in peaks if peak is not None]
        return self._held() + round(statistics.median(known)) if known else None

    def _held(self) -> int:
        """Weights, buffers and the optimizer's state; gradients are freed by a step and count in its peak."""
        method, optimizer = self.state.method, self.state.optimizer
        tensors = [*method.parameters(), *method.buffers()]
        tensors += [t for kept in optimizer.state.values() for t in kept.values() if isinstance(t, torch.Tensor)]
        return sum(t.numel() * t.element_size() for t in tensors)

    def close(self) -> None:
        self.feed.close()


def _peak(step: Callable[[], None]) -> int | None:
    """Bytes of resident memory that `step` takes at its peak beyond what was there before."""
    if not (_STATUS.exists() and _RESET.exists()):
        return None
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # glibc would serve the peak from memory that it kept
        before = _resident("VmRSS")
        _RESET.write_text("5")
    except (OSError, AttributeError):
        return None
    step()
    return max(0, _resident("VmHWM") - before)


def _resident(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field + ":"))
    return 1024 * int(line.split()[1])
