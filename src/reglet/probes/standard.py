"""Coordinates in which features are easier to learn from, fixed on the training features."""

import torch
from jaxtyping import Float
from torch import Tensor

_ROWS = 1 << 16  # at a time, so that no copy of all features is made in float64


class Standard:
    """(x - mean) / deviation of the features that it was made with; one that does not vary becomes 0.

    In float64 on the CPU, or in the dtype that is asked for; in float32 on accelerators, which have few units for more
    or none.  With more features than samples, the coordinates of that in the span of the samples: a penalised W has no
    part outside it, so the problem is the same and smaller.
    """

    def __init__(self, x: Float[Tensor, "m d"]) -> None:
        wide = wide_dtype(x)
        self.mean = sum(part.to(wide).sum(0) for part in x.split(_ROWS)) / len(x)
        squares = sum((part.to(wide) - self.mean).square().sum(0) for part in x.split(_ROWS))
        self.scale = (squares / len(x)).sqrt()
        self.basis: Tensor | None = None
        if x.shape[1] > len(x):
            self.basis = torch.linalg.qr(self(x).T).Q

    def __call__(self, x: Float[Tensor, "n d"], dtype: torch.dtype | None = None) -> Float[Tensor, "n r"]:
        return torch.cat([self._rows(part).to(dtype) for part in x.split(_ROWS)])

    def _rows(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        centred = x.to(self.mean.dtype) - self.mean
        x = torch.where(self.scale > 1e-12, centred / self.scale.clamp_min(1e-12), torch.zeros_like(centred))
        return x if self.basis is None else x @ self.basis


def wide_dtype(x: Tensor) -> torch.dtype:
    """Of what is solved exactly."""
    return torch.float64 if x.device.type == "cpu" else torch.float32


class Decorrelated:
    """Principal components u_k of standardised features x, each divided by sqrt(variance_k + damping).

    Features of networks are so correlated that one direction can have a hundred times the variance of the average: a
    step that is stable there moves the others hardly at all.  Here no direction has more than 1, and those below
    `damping` keep their proportions.

    penalty: |W|^2 of a classifier W of x is sum_k penalty_k |W'_k|^2 of the classifier W' of these coordinates.
    """

    def __init__(self, x: Float[Tensor, "m r"], *, damping: float) -> None:
        variance, axes = torch.linalg.eigh((x.T @ x / len(x)).to(wide_dtype(x)))
        self.penalty = (1 / (variance.clamp_min(0) + damping)).to(x.dtype)
        self.axes = axes.to(x.dtype) * self.penalty.sqrt()

    def __call__(self, x: Float[Tensor, "n r"]) -> Float[Tensor, "n r"]:
        return x @ self.axes
