"""The gradient of a step: of the whole batch, of parts with separate losses, or by a gradient cache.

The cache computes the gradient of the whole batch with the memory of a micro-batch.  Gao et al. 2021, "Scaling deep
contrastive learning batch size under memory limited setup", arXiv:2101.06983.

    z_j = f(x_j)                  for every micro-batch j, without a graph
    g   = dL/dz                   of the loss on all embeddings at once
    dL/dw = sum_j g_j dz_j/dw     each z_j computed again, with a graph

It is exact if f treats samples one by one.  Batch norm does not: it uses the statistics of the micro-batch in both
passes.  The gradient is then that of a network whose batch norm sees `micro_batch` samples (ghost batch norm).  Running
averages move only in the second pass.  Dropout is the same in both passes, because each micro-batch has a seed.
Terms of `Preserved` join in the second pass (`preserve_in_parts`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from reglet.engine.order import seed_of
from reglet.engine.preserve_in_parts import Made, Measurement, Term, inside, seen, weighted
from reglet.method import Batch, Method
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

    A share of the gradient on the network's weights is more than that.  `Preserved` and `Partly` change nothing.
    """
    method = inside(method) if isinstance(method, Method) else method
    if isinstance(method, Predictive):
        return not isinstance(method.balance.weight, Share)
    return isinstance(method, Splittable)


def require_splittable(method: object) -> None:
    if splittable(method):
        return
    method = inside(method) if isinstance(method, Method) else method
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
    method = inside(model.module.method)
    parts = batch.split(size)
    seeds = [seed_of(seed, j) for j in range(len(parts))]
    with torch.no_grad(), frozen_averages(model):
        found = [model(partial(_made, part=part, seed=s)) for part, s in zip(parts, seeds, strict=True)]
    axes = SAMPLES if isinstance(method, Predictive) else (1,)
    by_tensor = list(zip(axes, zip(*found, strict=True), strict=True))
    z = [torch.cat(pieces, dim=axis).requires_grad_() for axis, pieces in by_tensor]
    reseed(seed, fabric.device)
    with fabric.autocast():  # not through `model`, for which Fabric allows only its own backward; this one ends at z
        if isinstance(method, Predictive):
            terms: Terms = method.objective(Forecast(*z))
        else:
            terms = cast(Splittable, method).objective(list(z[0]), n_global=batch.n_global)
    slopes = torch.autograd.grad(total(terms), z, allow_unused=True, materialize_grads=True)
    cut = [
        slope.split([piece.shape[axis] for piece in pieces], dim=axis)
        for slope, (axis, pieces) in zip(slopes, by_tensor, strict=True)
    ]
    slices = [
        _Slice(part, s, len(part) / len(batch), [slope[j] for slope in cut], first=j == 0)
        for j, (part, s) in enumerate(zip(parts, seeds, strict=True))
    ]
    measurement = Measurement(model.module.method)
    if measurement.due:
        with fabric.no_backward_sync(model), frozen_averages(model):
            for each in slices:
                model(lambda m, each=each: measurement.add(*_again(m, each)))
        measurement.close()
    kept: Terms = {}
    for j, each in enumerate(slices):
        with fabric.no_backward_sync(model, enabled=j + 1 < len(parts)):
            own = _backward(fabric, model, each)
        kept |= {name: kept.get(name, 0) + term for name, term in own.items()}
    return {name: term.detach() for name, term in terms.items()} | kept


class _Slice(NamedTuple):
    """A micro-batch in the second pass.  size: its part of all samples.  slopes: of the loss, on what it sees."""

    batch: Batch
    seed: int
    size: float
    slopes: Made
    first: bool


def _again(method: Method, each: _Slice) -> tuple[Made, Made, list[Term]]:
    """What the loss sees of the micro-batch, now with a graph; its slopes; the terms of `Preserved`."""
    make = partial(_made, part=each.batch, seed=each.seed)
    made, terms = seen(method, make, part=each.size, once=each.first)
    return made, each.slopes, terms


def _backward(fabric: Fabric, model: Any, each: _Slice) -> Terms:
    """Adds the gradient of a micro-batch, and returns its terms of `Preserved`."""

    def forward(method: Method) -> tuple[Made, Terms]:
        made, _, terms = _again(method, each)
        return made, weighted(terms)

    made, terms = model(forward)
    if len(made) == 1 and not terms:
        fabric.backward(made[0], each.slopes[0])
    else:  # Fabric starts from one tensor: that of which all of these are the gradient
        products = [(y * slope).sum() for y, slope in zip(made, each.slopes, strict=True)]
        fabric.backward(torch.stack([*products, *terms.values()]).sum())
    return {name: term.detach() for name, term in terms.items()}


def _made(method: Method, *, part: Batch, seed: int) -> Made:
    """What the loss sees of these samples: their embeddings (v, n, d), or the tensors of their `Forecast`."""
    method = inside(method)
    reseed(seed, part.views[0].device)
    if isinstance(method, Predictive):
        return list(method.forecast(part))
    assert isinstance(method, Splittable)
    return [torch.stack(list(method.embed(part.views)))]


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
