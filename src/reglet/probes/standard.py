"""Coordinates in which features are easier to learn from, fixed on the training features."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int64
from torch import Tensor

AT_ONCE = 1 << 22  # numbers of a part: 32 MB in float64
KEPT = 1 << 25  # numbers: fewer are standardized once, more each time they are needed
Index = Int64[Tensor, "_"]


def parts(x: Float[Tensor, "n d"], index: Index | None = None) -> Iterator[Float[Tensor, "_ d"]]:
    """The rows of x, or those at `index`, a few at a time, so that all features are never copied."""
    rows = max(1, AT_ONCE // max(1024, x.shape[1]))
    yield from x.split(rows) if index is None else (x[some] for some in index.split(rows))


class Standard:
    """(x - mean) / deviation of the features that it was made with; one that does not vary becomes 0.

    In float64 on the CPU, or in the dtype that is asked for; in float32 on accelerators, which have few units for more
    or none.  With more features than samples, the coordinates of that in the span of the samples: a penalised W has no
    part outside it, so the problem is the same and smaller.

    index: of the features that count; all, if not given.
    """

    def __init__(self, x: Float[Tensor, "m d"], *, index: Index | None = None) -> None:
        wide, count = wide_dtype(x), len(x if index is None else index)
        sums = [part.to(wide).sum(0) for part in parts(x, index)]
        self.mean = torch.stack(sums).sum(0) / count
        squares = [(part.to(wide) - self.mean).square().sum(0) for part in parts(x, index)]
        self.scale = (torch.stack(squares).sum(0) / count).sqrt()
        self.basis: Tensor | None = None
        if x.shape[1] > count:
            self.basis = torch.linalg.qr(torch.cat(list(self.parts(x, index=index))).T).Q

    def __call__(self, x: Float[Tensor, "n d"], dtype: torch.dtype | None = None) -> Float[Tensor, "n r"]:
        return torch.cat([part.to(dtype) for part in self.parts(x)])

    def parts(self, x: Float[Tensor, "n d"], *, index: Index | None = None) -> Iterator[Float[Tensor, "_ r"]]:
        """Of all rows, or of those at `index`, a few at a time."""
        return (self._rows(part) for part in parts(x, index))

    def _rows(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        centred = x.to(self.mean.dtype) - self.mean
        x = torch.where(self.scale > 1e-12, centred / self.scale.clamp_min(1e-12), torch.zeros_like(centred))
        return x if self.basis is None else x @ self.basis


class Repeated:
    """Parts that are gone through many times: made anew each time or, where they are few, kept.

    numbers: in all parts together.
    """

    def __init__(self, make: Callable[[], Iterator[Tensor]], *, numbers: int) -> None:
        self.make, self.kept = make, list(make()) if numbers <= KEPT else None

    def __iter__(self) -> Iterator[Tensor]:
        return self.make() if self.kept is None else iter(self.kept)


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
