"""How long a run takes and how much memory it needs, measured on a few images.  From that follow the defaults:

    batch         the largest power of two that fits four times into an epoch, at most 256
    epochs        100; on a CPU at most as many as fit into four minutes
    micro_batch   0; if the batch does not fit into memory, a size that does, provided that the gradient stays exact

Given values are not changed.  Measuring does not change the run: it uses a copy of the method and restores the random
state.
"""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from reglet import progress
from reglet.engine.build import Parts
from reglet.engine.config import Config
from reglet.engine.feed import ImageFeed, Place
from reglet.engine.gradient import splittable
from reglet.seeded import seeded

EPOCHS, SECONDS = 100, 240.0  # defaults; SECONDS is for a CPU
LONG_ENOUGH = 0.4  # seconds: measuring a longer step would tell little more
ROOM = 0.7  # share of the free memory that a run may take by default
KNN_IMAGES = 2_000  # of each part, at most
BEYOND = 1.3  # factor for gradients of activations and scratch memory, beyond what the backward pass keeps


@dataclass(frozen=True)
class Budget:
    """What was measured on `images` images.  seconds: for one image in a step.

    held: bytes of weights, gradients and the optimizer's state.  each: bytes for one image in a step.
    """

    images: int
    seconds: float
    held: int
    each: float

    def memory(self, images: int) -> float:
        return self.held + BEYOND * self.each * images


def settle(asked: Config, parts: Parts, fabric: Fabric, *, seconds: float = SECONDS) -> tuple[Config, Budget | None]:
    """The configuration with its defaults filled in, the same on every rank; and what was measured.

    seconds: the time that a run may take on a CPU by default.
    Nothing is measured if weights are sharded or not float32, because a copy would differ from what trains.
    """
    config, budget = replace(asked, batch=parts.batch), None
    if config.strategy == "ddp" and config.precision != "bf16-true" and not config.resume:
        with progress.work("measuring a step on a few images"):
            budget = fabric.broadcast(measure(config, parts, fabric))
    if budget is None:
        return replace(config, epochs=config.epochs or EPOCHS), None
    free = fabric.broadcast(free_memory(fabric.device))
    config = within_memory(config, parts, budget, free=free, world=fabric.world_size, batch_is_open=not asked.batch)
    if not config.epochs:
        config = replace(config, epochs=fitting_epochs(config, parts, budget, fabric.device, seconds=seconds))
    return config, budget


def measure(config: Config, parts: Parts, fabric: Fabric) -> Budget | None:
    """Times forward and backward of a copy on 2, 4, 8, ... images, until that takes long enough to be trusted.

    Ranks compute a loss together, so none may stop alone: with several ranks there are two measurements.  Sizes that
    are too small for a loss are skipped.  None if every step fails or a loss is not finite: the run itself will say so.
    """
    method = deepcopy(parts.method).to(fabric.device).train()
    tried: list[tuple[int, int]] = []
    count, took = 2, 0.0
    with seeded(config.seed, fabric.device):
        # At least two: the first pays for one-time work, and the memory of an image is the slope between two.
        while count <= parts.batch and (len(tried) < 2 or (fabric.world_size == 1 and took < LONG_ENOUGH)):
            try:
                took, kept = _step(method, config, parts, fabric, count)
                tried.append((count, kept))
            except ValueError:
                pass
            except FloatingPointError:
                return None
            count *= 2
    if not tried:
        return None
    (fewer, less), (more, most) = tried[-2:] if len(tried) > 1 else ((0, 0), tried[0])
    each = max(most - less, 0) / (more - fewer)
    held = sum(t.numel() * t.element_size() for t in (*method.parameters(), *method.buffers()))
    trained = sum(p.numel() * p.element_size() for p in method.parameters() if p.requires_grad)
    states = {"adam": 2, "adamw": 2}.get(config.optimizer, 1)
    held += trained * (1 + states) + (held if config.ema else 0)
    return Budget(more, took / more, held, each)


def _step(method: nn.Module, config: Config, parts: Parts, fabric: Fabric, count: int) -> tuple[float, int]:
    """The seconds of a step, and the bytes that are kept for its backward pass."""
    feed = ImageFeed(parts.images, parts.policy, batch=count, seed=config.seed)
    feed.open(Place(fabric.device, channels_last=config.channels_last), steps=1)
    start = time.perf_counter()
    with closing(feed), kept_bytes(method) as kept:
        batch = feed(0)
        with fabric.autocast():
            loss = sum(method(batch).values(), start=torch.zeros((), device=fabric.device))
        loss.backward()
    method.zero_grad()
    if fabric.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, sum(kept.values())


@contextmanager
def kept_bytes(method: nn.Module) -> Iterator[dict[int, int]]:
    """The memory that autograd keeps for the backward pass, without the weights: address -> bytes."""
    weights = {t.untyped_storage().data_ptr() for t in (*method.parameters(), *method.buffers())}
    found: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        yield found


def fitting_epochs(
    config: Config, parts: Parts, budget: Budget, device: torch.device, *, seconds: float = SECONDS
) -> int:
    """At least one.  A run whose length is given in steps does not use it."""
    if device.type != "cpu" or config.steps:
        return EPOCHS
    return max(1, min(EPOCHS, int(seconds / seconds_of(config, parts, budget, epochs=1, device=device))))


def seconds_of(config: Config, parts: Parts, budget: Budget, *, epochs: int, device: torch.device) -> float:
    """The time of training.  Processes on one CPU share it; every other device has its own part of the batch."""
    per_epoch = len(parts.images) // config.batch
    steps = config.steps or epochs * per_epoch
    shared = 1 if device.type == "cpu" else config.devices * config.nodes
    passes = 4 / 3 if config.micro_batch else 1  # the gradient cache computes every embedding twice
    trained = steps * config.batch * budget.seconds * passes / shared
    if not config.knn_every or parts.test is None or parts.images.labels is None:
        return trained
    scores = steps / (per_epoch * config.knn_every)
    scored = min(KNN_IMAGES, len(parts.images)) + min(KNN_IMAGES, len(parts.test))
    forward = budget.seconds / (3 * len(parts.policy.draw(1)))  # a third of a step, in one view
    return trained + scores * scored * forward


def within_memory(
    config: Config, parts: Parts, budget: Budget, *, free: int | None, world: int, batch_is_open: bool
) -> Config:
    """The configuration with a micro_batch; or, if that would not be exact and the batch is open, a smaller batch."""
    here = config.micro_batch or config.batch // world // config.accumulate
    if free is None or budget.memory(here) <= ROOM * free:
        return config
    fits = 2
    while budget.memory(2 * fits) <= ROOM * free:
        fits *= 2
    says = f"{budget.memory(here) / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
    if budget.memory(2) > free:
        raise ValueError(f"two images at a time need {budget.memory(2) / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")
    if not config.micro_batch and config.accumulate == 1 and exact_in_parts(parts.method):
        return replace(config, micro_batch=fits)
    if batch_is_open:
        return replace(config, batch=fits * world * config.accumulate, micro_batch=0)
    if budget.memory(here) <= free:
        return config  # tight, but this is what was asked for
    if config.micro_batch:
        raise ValueError(f"micro_batch={config.micro_batch} needs {says}: micro_batch={fits} fits")
    ways = [f"batch={fits * world} fits"]
    if splittable(parts.method):
        ways.append(f"micro_batch={fits} too, with batch norm over {fits} images at a time")
    ways.append(f"so does accumulate={-(-here // fits)}, with a loss for each part")
    raise ValueError(f"batch={config.batch} needs {says}: {', '.join(ways)}")


def exact_in_parts(method: nn.Module) -> bool:
    """Whether the gradient cache gives the gradient of the whole batch.  With batch norm it does not."""
    norms = [m for m in method.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    return splittable(method) and not norms


def free_memory(device: torch.device) -> int | None:
    """The free bytes on `device`; None if unknown."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    if device.type != "cpu":
        return None
    known = [n for n in (_available(), _in_group()) if n is not None]
    return min(known) if known else None


def _available(path: Path = Path("/proc/meminfo")) -> int | None:
    """The available memory on Linux; elsewhere all of the memory."""
    if path.is_file():
        for row in path.read_text().splitlines():
            if row.startswith("MemAvailable:"):
                return 1024 * int(row.split()[1])
    known: Any = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" in known and "SC_PAGE_SIZE" in known:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _in_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container has left: its limit minus what it uses.  File caches count as free."""
    try:
        limit, taken = ((folder / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        stat = dict(row.split() for row in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) - int(taken) + int(stat.get("inactive_file", 0))
