"""Axis letters, and the types that all rooms share.

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
INVARIANCE = ("invariance", "alignment", "prediction")  # names of the term that the regularizer holds against
P = TypeVar("P")


class WrongKindError(TypeError, ValueError):
    """A network, a block or its output is not of the expected kind.  The command line shows it as a message.  A plain
    TypeError is our own fault, and is shown with its traceback."""


def total(terms: Terms) -> Scalar:
    """The scalar loss: the sum of its terms."""
    return reduce(add, terms.values())


@runtime_checkable
class ViewLoss(Protocol):
    """A loss on the embeddings of several views: VISReg, SMI, VICReg, ..."""

    def __call__(self, *views: Tensor) -> Scalar: ...

    def terms(self, *views: Tensor) -> Terms: ...


@runtime_checkable
class BlockLoss(Protocol):
    """A loss on the input and output of a block: SIM."""

    def __call__(self, x: Tensor, y: Tensor) -> Scalar: ...


@runtime_checkable
class LatentLoss(Protocol):
    """A loss on latents, labels and the shared classifier: LatentDR, BatchFormer, ..."""

    def __call__(self, z: Tensor, y: Tensor, head: Callable[[Tensor], Tensor]) -> Scalar: ...

    def terms(self, z: Tensor, y: Tensor, head: Callable[[Tensor], Tensor]) -> Terms: ...


@runtime_checkable
class Transform(Protocol[P]):
    """A random operation: a view policy, a latent operator, a group action.  It draws first, and applies the draw."""

    def draw(self, n: int, generator: torch.Generator | None = None) -> P: ...

    def apply(self, x: Tensor, p: P) -> Tensor: ...
