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
from reglet.methods import Forecast, Predictive
from reglet.schedules import Share
from reglet.seeded import reseed
from reglet.types import Terms, total

SAMPLES = (0, 0, 1)  # the axis of each tensor of a `Forecast` that counts samples


@runtime_checkable
class Splittable(Protocol):
    """A method whose loss depends on the samples only through their embeddings."""

    def embed(self, views: Sequence[Tensor]) -> Sequence[Tensor]: ...

    def objective(self, z: Sequence[Tensor], *, n_global: int) -> Terms: ...


def splittable(method: object) -> bool:
    """Whether the loss sees the samples through their embeddings, or through their forecasts, only.

    A share of the gradient on the network's weights is more than that.
    """
    if isinstance(method, Predictive):
        return not isinstance(method.balance.weight, Share)
    return isinstance(method, Splittable)


def require_splittable(method: object) -> None:
    if splittable(method):
        return
    if isinstance(method, Predictive):
        raise ValueError(
            "micro_batch: the share of the gradient is measured on the weights of the network, through the whole "
            "batch. Give weight= a number, or leave micro_batch out"
        )
    raise ValueError(
        f"micro_batch needs a method with embed() and objective(), such as JointEmbedding; "
        f"{type(method).__name__} has not. accumulate= averages the losses of parts of the batch instead."
    )


def cached_backward(fabric: Fabric, model: Any, batch: Batch, *, size: int, seed: int) -> Terms:
    """The terms of the loss on `batch`.  Its gradient is added to the parameters' gradients."""
    method = model.module.method
    parts = batch.split(size)
    seeds = [seed_of(seed, j) for j in range(len(parts))]
    with torch.no_grad(), frozen_averages(model):
        found = [_made(model, part, s) for part, s in zip(parts, seeds, strict=True)]
    axes = SAMPLES if isinstance(method, Predictive) else (1,)
    by_tensor = list(zip(axes, zip(*found, strict=True), strict=True))
    z = [torch.cat(pieces, dim=axis).requires_grad_() for axis, pieces in by_tensor]
    reseed(seed, fabric.device)
    with fabric.autocast():  # not through `model`, for which Fabric allows only its own backward; this one ends at z
        if isinstance(method, Predictive):
            terms: Terms = method.objective(Forecast(*z))
        else:
            terms = method.objective(list(z[0]), n_global=batch.n_global)
    slopes = torch.autograd.grad(total(terms), z, allow_unused=True, materialize_grads=True)
    cut = [
        slope.split([piece.shape[axis] for piece in pieces], dim=axis)
        for slope, (axis, pieces) in zip(slopes, by_tensor, strict=True)
    ]
    for j, (part, s) in enumerate(zip(parts, seeds, strict=True)):
        with fabric.no_backward_sync(model, enabled=j + 1 < len(parts)):
            again, g = _made(model, part, s), [slope[j] for slope in cut]
            if len(g) == 1:
                fabric.backward(again[0], g[0])
            else:  # Fabric starts from one tensor: that of which all of these are the gradient
                fabric.backward(torch.stack([(y * slope).sum() for y, slope in zip(again, g, strict=True)]).sum())
    return {name: term.detach() for name, term in terms.items()}


def _made(model: Any, part: Batch, seed: int) -> list[Tensor]:
    """What the loss sees of these samples: their embeddings (v, n, d), or the tensors of their `Forecast`."""
    reseed(seed, part.views[0].device)
    if isinstance(model.module.method, Predictive):
        made: Forecast = model(lambda m: m.forecast(part))
        return list(made)
    return [model(lambda m: torch.stack(list(m.embed(part.views))))]


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
