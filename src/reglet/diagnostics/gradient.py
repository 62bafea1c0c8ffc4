"""Gradients as evidence: what each term of a loss asks for, and how steady the whole is over training.

Spikes are those of the SIM paper's figure 5 (gradient norm against its moving average), made numbers: a step whose norm
exceeds `factor` times the average of the steps before it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reglet.precision import in_float64
from reglet.types import Terms


def gradient_norms(terms: Terms, tensors: Tensor | Sequence[Tensor]) -> dict[str, float]:
    """Norm of each term's gradient with respect to `tensors` (embeddings, or parameters) all together.

    >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> gradient_norms({"a": x.square().sum() / 2, "b": 2 * x[0]}, x)
    {'a': 5.0, 'b': 2.0}
    """
    inputs = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norms = {}
    for name, term in terms.items():
        if not term.requires_grad:
            norms[name] = 0.0
            continue
        grads = torch.autograd.grad(term, inputs, retain_graph=True, allow_unused=True)
        squares = [in_float64(g).square().sum() for g in grads if g is not None]
        norms[name] = float(torch.stack(squares).sum().sqrt()) if squares else 0.0
    return norms


class Spikes(NamedTuple):
    steps: list[int]  # where they are
    share: float  # of all steps
    variation: float  # coefficient of variation about the moving average


def gradient_spikes(norms: Sequence[float], *, factor: float = 3.0, decay: float = 0.98) -> Spikes:
    """Steps whose norm is above `factor` times the moving average of those before; such a norm counts in it as
    `factor` times the average, so one spike does not hide the next.  A norm that is not finite is a spike.

    variation: the deviation of norm / average over all steps but the first.  A loss twice as large has the same.
    """
    if len(norms) < 2 or not np.isfinite(norms[0]) or min(x for x in norms if x == x) < 0:
        raise ValueError(f"expected two gradient norms or more, none negative and the first finite; got {norms[:5]}")
    average = weight = 0.0
    steps, relative = [], []
    for i, norm in enumerate(norms):
        now = average / weight if weight else norm  # the weights of the past sum to 1 - decay^i
        # not <=, so that nan is a spike; a gradient that was exactly zero until now has no scale to compare with
        spike = not norm <= factor * now if now > 0 or norm != norm else False
        if spike:
            steps.append(i)
        if i and now > 0:
            relative.append(min(norm / now, 1e6) if np.isfinite(norm) else 1e6)
        kept = factor * now if spike else norm
        average, weight = decay * average + (1 - decay) * kept, decay * weight + (1 - decay)
    return Spikes(steps, len(steps) / len(norms), float(np.std(relative)) if relative else 0.0)
