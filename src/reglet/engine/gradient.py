"""The gradient of a step, by one of three ways: the batch at once, in parts with losses of their own, or cached."""

from typing import Any

from lightning_fabric import Fabric

from reglet.engine.gradient_cache import cached_backward
from reglet.method import Batch
from reglet.seeded import reseed
from reglet.types import Terms, total


def backward(fabric: Fabric, model: Any, batch: Batch, *, micro_batch: int, accumulate: int, seed: int) -> Terms:
    """Adds the gradient to the parameters'; gives the terms of the loss.  `seed` is dropout's."""
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
