"""A network trained by a loss on batches, with SIM on some of its blocks or without."""

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from jaxtyping import Int
from torch import Tensor, nn

from reglet.attach import attach
from reglet.blocks import SIM
from reglet.tasks.config import TaskConfig
from reglet.types import Scalar

WARM_UP = 0.1  # of the steps
LARGEST = 1.0  # norm of a gradient; longer ones are shortened to it


def batches(n: int, *, batch: int, steps: int, seed: int) -> Iterator[Int[Tensor, " b"]]:
    """`steps` batches of indices, epoch after epoch; a remainder is left out, and a small set is one batch."""
    generator = torch.Generator().manual_seed(seed)
    size = min(n, batch)
    done = 0
    while done < steps:
        for some in torch.randperm(n, generator=generator).split(size):
            if len(some) == size and done < steps:
                done += 1
                yield some


def fit(
    network: nn.Module,
    loss: Callable[[Tensor], Scalar],
    batches: Iterable[Tensor],
    *,
    config: TaskConfig,
    blocks: str | list[str] | None,
    example: Tensor | tuple[Tensor, ...] | None = None,
    channel_dim: int | None = None,
    seed: int = 0,
) -> tuple[str, ...]:
    """Train by AdamW, with a warm-up and a cosine over `config.steps`.  Gives the blocks that SIM stood on.

    loss: of the samples with these indices; it calls the network once or more.
    blocks: where SIM is attached; None: nowhere.  Its heads and places are drawn from its own random numbers, so the
        network and the batches are the same without it.
    example: an input of the network, from which the heads are built.
    channel_dim: of what the blocks pass, where SIM cannot know: (n, c, t) is like (n, tokens, c).
    """
    where = blocks.split(",") if isinstance(blocks, str) else blocks
    penalty = SIM(rho=config.rho, seed=seed, channel_dim=channel_dim)
    sim = attach(network, where, penalty, example=example) if where else None
    trained = [*network.parameters(), *(sim.parameters() if sim else ())]
    optimizer = torch.optim.AdamW(trained, lr=config.lr, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, config.steps))
    network.train()
    try:
        for step, some in enumerate(batches):
            value = loss(some)
            if sim:
                value = value + config.weight * sim.loss()
            if not math.isfinite(found := float(value.detach())):
                raise ValueError(f"the loss is {found} in step {step} at lr={config.lr:g}: try a smaller one")
            optimizer.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(network.parameters(), LARGEST)  # of the heads it would shorten the network's
            optimizer.step()
            schedule.step()
        return tuple(sim.blocks) if sim else ()
    finally:
        if sim:
            sim.remove()
        network.eval()


def rate(step: int, steps: int) -> float:
    """Share of the learning rate: linear to one over a tenth of the steps, then half a cosine to zero."""
    warm = max(1, round(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))
