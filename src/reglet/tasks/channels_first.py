"""`fit` for networks whose blocks pass (n, c, t) or (n, c, f, t): tokens are frames, or points of the map."""

from collections.abc import Callable, Iterable

from torch import Tensor, nn

from reglet.attach import attach
from reglet.blocks import SIM
from reglet.tasks.config import TaskConfig
from reglet.tasks.fit import fit
from reglet.types import Scalar


def fit_channels_first(
    network: nn.Module,
    loss: Callable[[Tensor], Scalar],
    batches: Iterable[Tensor],
    *,
    config: TaskConfig,
    blocks: str | list[str] | None,
    example: Tensor,
    seed: int,
) -> tuple[str, ...]:
    """`fit`, with SIM told that axis 1 has the channels: it cannot know, (n, c, t) being like (n, tokens, c)."""
    where = blocks.split(",") if isinstance(blocks, str) else blocks
    if not where:
        return fit(network, loss, batches, config=config, blocks=None, seed=seed)
    sim = attach(network, where, SIM(rho=config.rho, seed=seed, channel_dim=1), example=example)
    try:
        both = nn.ModuleList([network, sim.heads])  # the heads are trained too
        fit(both, lambda some: loss(some) + config.weight * sim.loss(), batches, config=config, blocks=None, seed=seed)
        return tuple(sim.blocks)
    finally:
        sim.remove()
