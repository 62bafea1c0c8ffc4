"""When a loss or gradient stops being a number: stop before the weights do, and leave what reproduces the step."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from reglet.engine.shard import whole
from reglet.types import Terms


class NonFiniteError(FloatingPointError):
    """The loss or its gradient was not finite; `bundle` is the file that reproduces the step."""

    def __init__(self, message: str, bundle: Path) -> None:
        super().__init__(message)
        self.bundle = bundle


def remember(method: nn.Module) -> dict[str, Tensor]:
    """What a forward pass may change: all but the trained parameters, which only the optimizer does."""
    trained = {name for name, p in method.named_parameters() if p.requires_grad}
    return {key: value.clone() for key, value in method.state_dict().items() if key not in trained}


def complaint(terms: Terms, norm: float | None) -> str:
    """What is not finite, or nothing."""
    bad = [f"{name} = {float(term)}" for name, term in terms.items() if not math.isfinite(float(term))]
    if not bad and norm is not None and not math.isfinite(norm):
        bad = [f"norm of the gradient = {norm}"]
    return ", ".join(bad)


def bundle(method: nn.Module, before: Mapping[str, Tensor], index: Tensor) -> dict[str, Tensor]:
    """The weights as they were before the step, and the indices of its global batch."""
    tensors = {f"method.{key}": whole(value) for key, value in {**method.state_dict(), **before}.items()}
    return {**tensors, "index": index}


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
