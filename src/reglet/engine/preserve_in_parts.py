"""The terms of `Preserved` under a gradient cache (`micro_batch=`).

A distance D to the start is a mean over samples.  With n_j of the n samples in micro-batch j

    D(x) = sum_j n_j / n D(x_j)        dD/dw = sum_j n_j / n dD(x_j)/dw

so its gradient is that of the whole batch.  A Gram matrix is that of the tokens of one image, so it is no exception.
L2-SP sees no samples, and is added once.

A share of the gradient compares the gradients of the whole batch, term by term.  At the steps that measure it, one more
pass over the micro-batches sums them up.  That takes the memory of one more gradient for the loss and for each term.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from reglet.method import Method
from reglet.methods import Partly, Preserved
from reglet.types import Scalar, Terms

Made = list[Tensor]  # what the loss sees of some samples
Gradient = list[Tensor | None]


def inside(method: Method) -> Method:
    """The method inside `Preserved` and `Partly`, which leave its loss as it is."""
    while isinstance(method, Partly | Preserved):
        method = method.method
    return method


def holders(method: Method) -> list[Preserved]:
    """Those around `inside(method)`, the innermost first."""
    found: list[Preserved] = []
    while isinstance(method, Partly | Preserved):
        found += [method] if isinstance(method, Preserved) else []
        method = method.method
    return found[::-1]


class Term(NamedTuple):
    """A term of one micro-batch, before its weight."""

    holder: Preserved
    kind: str
    value: Scalar


def seen(method: Method, make: Callable[[Method], Made], *, part: float, once: bool) -> tuple[Made, list[Term]]:
    """What the loss sees, and the terms of a micro-batch with `part` of all samples.  once: with L2-SP."""
    around = holders(method)
    with ExitStack() as stack:
        calls = [stack.enter_context(holder.watching()) for holder in around]
        made = make(inside(method))
    terms = []
    for holder, own in zip(around, calls, strict=True):
        found = {kind: part * value for kind, value in holder.distances(own).items()}
        if "l2sp" in holder.keep and once:
            found["l2sp"] = holder.moved()
        terms += [Term(holder, kind, found[kind]) for kind in holder.keep if kind in found]
    return made, terms


def weighted(terms: Sequence[Term]) -> Terms:
    return {f"preserve.{t.kind}": t.holder.balance[t.kind].current() * t.value for t in terms}  # type: ignore[operator]


class Measurement:
    """The gradients on the backbone's weights: of the loss, and of each term."""

    def __init__(self, method: Method) -> None:
        self.holders = holders(method)
        self.weights = [p for h in self.holders[:1] for p in h.backbone.parameters() if p.requires_grad]
        self.loss: Gradient = [None] * len(self.weights)
        self.terms: dict[tuple[Preserved, str], Gradient] = {
            (h, kind): [None] * len(self.weights) for h in self.holders for kind in h.keep
        }

    @property
    def due(self) -> bool:
        return bool(self.weights) and any(weight.due for h in self.holders for weight in h.balance.values())

    def add(self, made: Made, slopes: Made, terms: Sequence[Term]) -> None:
        """A micro-batch.  slopes: the gradient of the loss with respect to what it sees."""
        for sums, given, start in [(self.loss, made, slopes), *((self.terms[t[:2]], [t.value], None) for t in terms)]:
            grads = torch.autograd.grad(given, self.weights, start, retain_graph=True, allow_unused=True)
            sums[:] = [a if g is None else g if a is None else a + g for a, g in zip(sums, grads, strict=True)]

    def close(self) -> None:
        """Sets the shares one after another, as `Preserved` does: the rest of a term is all that stands before it."""
        rest = [torch.zeros_like(p) if g is None else g for p, g in zip(self.weights, self.loss, strict=True)]
        for (holder, kind), own in self.terms.items():
            balance = holder.balance[kind]
            balance.measure(own, rest)  # type: ignore[operator]
            weight = balance.current()  # type: ignore[operator]
            rest = [r if g is None else r + weight * g for r, g in zip(rest, own, strict=True)]
