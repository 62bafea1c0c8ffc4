"""Processes: one, several on this machine, or those that torchrun has started."""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from lightning_fabric.strategies.strategy import Strategy
from torch.nn.parallel import DistributedDataParallel

from reglet.dist import on_any_rank
from reglet.engine.settings import Settings
from reglet.engine.shard import shard


def launch(settings: Settings) -> Fabric:
    devices, nodes = settings.devices, settings.nodes
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun decides, and says so
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    world = devices * nodes
    if settings.batch % (world * settings.accumulate):
        raise ValueError(f"batch {settings.batch} is not a multiple of {world} processes x {settings.accumulate} parts")
    require_accelerator(settings.accelerator, devices)
    strategy: Strategy | str = "auto"
    # gloo beside NCCL: hosts exchange signals and errors without involving the GPUs.
    backend = "cpu:gloo,cuda:nccl" if settings.accelerator in ("auto", "cuda") and torch.cuda.is_available() else None
    if settings.strategy == "fsdp":
        strategy = ModelParallelStrategy(
            lambda module, mesh: shard(module, mesh["data_parallel"]),
            data_parallel_size=world,
            tensor_parallel_size=1,
            process_group_backend=backend,
        )
    elif world > 1:
        # Each rank keeps its own buffers.  A broadcast between the two passes of the gradient cache would change
        # buffers that autograd has saved.  torch 2.13 renamed the argument.
        names = inspect.signature(DistributedDataParallel).parameters
        more: Any = {"forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers": False}
        strategy = DDPStrategy(gradient_as_bucket_view=True, process_group_backend=backend, **more)
    fabric = Fabric(
        accelerator=settings.accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        precision=cast(Any, settings.precision),
    )
    fabric.launch()
    return fabric


def require_accelerator(name: str, devices: int = 1) -> None:
    """Raise if the machine has fewer than `devices` of that accelerator."""
    there = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if name in there and there[name] < devices:
        raise ValueError(
            f"{name} was asked for, with {devices} devices, and torch finds {there[name]} here: "
            "auto takes what there is, cpu is always there"
        )


def first_then_all(fabric: Fabric, act: Callable[[], None]) -> None:
    """Act on the first rank.  Every rank raises the error that happens there, so that none waits for another."""
    error: Exception | None = None
    if fabric.is_global_zero:
        try:
            act()
        except Exception as caught:
            error = caught
    error = fabric.broadcast(error)
    if error is not None:
        raise error


@contextmanager
def together(fabric: Fabric) -> Iterator[None]:
    """An error inside on one rank is raised on every rank at the end, so that none waits for another.

    Code inside that waits for other ranks must call `ask_others` first.
    """
    error: Exception | None = None
    try:
        yield
    except Exception as caught:
        if getattr(caught, "told", False):  # every rank knows of it
            raise
        error = caught
    if fabric.world_size > 1:
        mine = (error is not None and r == fabric.global_rank for r in range(fabric.world_size))
        failed = on_any_rank(*mine)
        if any(failed):
            first = failed.index(True)
            said = fabric.broadcast(f"rank {first}: {type(error).__name__}: {error}", src=first)
            error = error or RuntimeError(said)
            setattr(error, "told", True)  # noqa: B010
    if error is not None:
        raise error


def ask_others(fabric: Fabric) -> None:
    """Call this inside `together` before waiting for other ranks.  It raises if another rank has raised.

    The rank that raised answers at the end of its block; the others answer here or at the end of theirs.
    """
    with together(fabric):
        pass
