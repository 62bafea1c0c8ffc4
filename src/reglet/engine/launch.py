"""Processes: one, several on this machine, or those that torchrun has started already."""

import inspect
import os
from collections.abc import Callable
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from lightning_fabric.strategies.strategy import Strategy
from torch.nn.parallel import DistributedDataParallel

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
    strategy: Strategy | str = "auto"
    if settings.strategy == "fsdp":
        strategy = ModelParallelStrategy(
            lambda module, mesh: shard(module, mesh["data_parallel"]), data_parallel_size=world, tensor_parallel_size=1
        )
    elif world > 1:
        # Each rank keeps its buffers: those of batch norm are its own, and a broadcast between the two passes of the
        # gradient cache would change them under autograd's feet.  torch 2.13 gave the argument another name.
        names = inspect.signature(DistributedDataParallel).parameters
        more: Any = {"forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers": False}
        strategy = DDPStrategy(gradient_as_bucket_view=True, **more)
    fabric = Fabric(
        accelerator=settings.accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        precision=cast(Any, settings.precision),
    )
    fabric.launch()
    return fabric


def first_then_all(fabric: Fabric, act: Callable[[], None]) -> None:
    """Act on the first rank, and raise on every rank what happened there, so that none waits for another."""
    error: Exception | None = None
    if fabric.is_global_zero:
        try:
            act()
        except Exception as caught:
            error = caught
    error = fabric.broadcast(error)
    if error is not None:
        raise error


def on_any_rank(fabric: Fabric, *flags: bool) -> list[bool]:
    """For each flag, whether it is set on any rank."""
    if fabric.world_size == 1:
        return list(flags)
    counts = torch.tensor([float(flag) for flag in flags], device=fabric.device)
    return [bool(count) for count in fabric.all_reduce(counts, reduce_op="sum")]
