"""How far two computations of one loss lie apart."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Result:
    value: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class Deviation:
    """Of the value, relative; of the gradient, its norm relative to the gradient's norm."""

    value: float
    gradient: float

    def __or__(self, other: "Deviation") -> "Deviation":
        """The larger of each."""
        return Deviation(max(self.value, other.value), max(self.gradient, other.gradient))


def value_and_gradient(loss: Callable[..., Tensor], *inputs: Tensor) -> Result:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    value = loss(*leaves)
    gradients = torch.autograd.grad(value, leaves)
    return Result(value.detach().double(), torch.cat([g.reshape(-1) for g in gradients]).double())


def deviation(found: Result, true: Result) -> Deviation:
    value = (found.value - true.value).abs() / true.value.abs()
    gradient = torch.linalg.vector_norm(found.gradient - true.gradient) / torch.linalg.vector_norm(true.gradient)
    return Deviation(value.item(), gradient.item())
