"""Axis letters and the few shapes everything agrees on.

v views   n samples   t tokens   d features   c channels   h w height, width   k slices
"""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

Scalar = Float[Tensor, ""]
Terms = dict[str, Tensor]  # name -> weighted scalar: the loss is their sum, the log is the dict
INVARIANCE = ("invariance", "alignment")  # what losses call the term that the others hold against
P = TypeVar("P")


class WrongKindError(TypeError, ValueError):
    """A network, a block or its output is not of the kind that was asked for.  The command line shows it in words,
    unlike a TypeError that Python raised: that one is our fault."""


def total(terms: Terms) -> Scalar:
    """The scalar that a loss is: the sum of its terms."""
    return reduce(add, terms.values())


@runtime_checkable
class ViewLoss(Protocol):
    """VISReg, SMI, VICReg, ...: embeddings of two views or ten."""

    def __call__(self, *views: Tensor) -> Scalar: ...

    def terms(self, *views: Tensor) -> Terms: ...


@runtime_checkable
class BlockLoss(Protocol):
    """SIM: what goes into a block, what comes out."""

    def __call__(self, x: Tensor, y: Tensor) -> Scalar: ...


@runtime_checkable
class LatentLoss(Protocol):
    """LatentDR, BatchFormer, manifold mixup: latents, labels, the shared classifier."""

    def __call__(self, z: Tensor, y: Tensor, head: Callable[[Tensor], Tensor]) -> Scalar: ...

    def terms(self, z: Tensor, y: Tensor, head: Callable[[Tensor], Tensor]) -> Terms: ...


@runtime_checkable
class Transform(Protocol[P]):
    """Anything random: a view policy, a latent operator, a group action.  Draw once, apply purely."""

    def draw(self, n: int, generator: torch.Generator | None = None) -> P: ...

    def apply(self, x: Tensor, p: P) -> Tensor: ...
