"""The gradient of a step: of the whole batch, of parts with separate losses, or by a gradient cache.

The cache computes the gradient of the whole batch with the memory of a micro-batch.  Gao et al. 2021, "Scaling deep
contrastive learning batch size under memory limited setup", arXiv:2101.06983.

    z_j = f(x_j)                  for every micro-batch j, without a graph
    g   = dL/dz                   of the loss on all embeddings at once
    dL/dw = sum_j g_j dz_j/dw     each z_j computed again, with a graph

It is exact if f treats samples one by one.  Batch norm does not: it uses the statistics of the micro-batch in both
passes.  The gradient is then that of a network whose batch norm sees `micro_batch` samples (ghost batch norm).  Running
averages move only in the second pass.  Dropout is the same in both passes, because each micro-batch has a seed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from reglet.engine.order import seed_of
from reglet.method import Batch
from reglet.seeded import reseed
from reglet.types import Terms, total


@runtime_checkable
class Splittable(Protocol):
    """A method whose loss depends on the samples only through their embeddings."""

    def embed(self, views: Sequence[Tensor]) -> Sequence[Tensor]: ...

    def objective(self, z: Sequence[Tensor], *, n_global: int) -> Terms: ...


def require_splittable(method: object) -> None:
    if not isinstance(method, Splittable):
        raise ValueError(
            f"micro_batch needs a method with embed() and objective(), such as JointEmbedding; "
            f"{type(method).__name__} has not. accumulate= averages the losses of parts of the batch instead."
        )


def cached_backward(fabric: Fabric, model: Any, batch: Batch, *, size: int, seed: int) -> Terms:
    """The terms of the loss on `batch`.  Its gradient is added to the parameters' gradients."""
    parts = batch.split(size)
    seeds = [seed_of(seed, j) for j in range(len(parts))]
    with torch.no_grad(), frozen_averages(model):
        z = torch.cat([_embed(model, part, s) for part, s in zip(parts, seeds, strict=True)], dim=1)
    z.requires_grad_()
    reseed(seed, fabric.device)
    with fabric.autocast():  # not through `model`, for which Fabric allows only its own backward; this one ends at z
        terms: Terms = model.module.method.objective(list(z), n_global=batch.n_global)
    slope = torch.autograd.grad(total(terms), z)[0].split(size, dim=1)
    for j, (part, s) in enumerate(zip(parts, seeds, strict=True)):
        with fabric.no_backward_sync(model, enabled=j + 1 < len(parts)):
            fabric.backward(_embed(model, part, s), slope[j])
    return {name: term.detach() for name, term in terms.items()}


def _embed(model: Any, part: Batch, seed: int) -> Tensor:
    reseed(seed, part.views[0].device)
    z: Tensor = model(lambda m: torch.stack(list(m.embed(part.views))))
    return z


@contextmanager
def frozen_averages(module: nn.Module) -> Iterator[None]:
    """Batch norm uses the statistics of the batch and does not update its running averages."""
    kept = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    for m in kept:
        m.track_running_stats = False
    try:
        yield
    finally:
        for m in kept:
            m.track_running_stats = True


def backward(fabric: Fabric, model: Any, batch: Batch, *, micro_batch: int, accumulate: int, seed: int) -> Terms:
    """Adds the gradient to the parameters' gradients, and returns the terms of the loss.  seed: of dropout."""
    if micro_batch:
        return cached_backward(fabric, model, batch, size=micro_batch, seed=seed)
    reseed(seed, fabric.device)
    parts = batch.split(len(batch) // accumulate) if accumulate > 1 else [batch]
    mean: Terms = {}
    for j, part in enumerate(parts):
        with fabric.no_backward_sync(model, enabled=j + 1 < len(parts)):
            terms: Terms = model(lambda m, part=part: m(part))
            fabric.backward(total(terms) / len(parts))
        for name, term in terms.items():
            mean[name] = mean.get(name, 0) + term.detach() / len(parts)
    return mean
