"""The largest deviation of each loss, over sizes and seeds: from the formula in float64, and from lightly."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.deviation import Deviation, deviation, value_and_gradient
from benchmarks.peers import lightly_losses, slices
from benchmarks.subjects import Loss, Subject, directions, subjects


@dataclass(frozen=True)
class Size:
    v: int
    n_global: int
    n: int
    d: int


# n below, near and above d; n = 256 so that pairs of nearly equal projections occur
SIZES = (Size(2, 2, 16, 8), Size(2, 2, 32, 256), Size(4, 2, 64, 32), Size(4, 2, 256, 64), Size(2, 2, 64, 2048))
SLICES = 256
SEEDS = 3

Compare = Callable[[Subject, Size, Tensor], Deviation | None]


def embeddings(size: Size, seed: int) -> Tensor:
    """Views of a sample resemble each other; features correlate, and differ in mean and scale."""
    g = torch.Generator().manual_seed(seed)
    d = size.d
    base = torch.randn(size.n, d, generator=g) @ (torch.eye(d) + torch.randn(d, d, generator=g) / d**0.5)
    z = 0.5 * base + torch.randn(size.v, size.n, d, generator=g)
    return 0.2 * torch.randn(d, generator=g) + z * torch.exp(0.3 * torch.randn(d, generator=g))


def largest(
    compare: Compare, *, sizes: Iterable[Size] = SIZES, seeds: int = SEEDS, count: int = SLICES
) -> dict[str, Deviation | None]:
    """For each loss by name; None where there is nothing to compare with."""
    found: dict[str, Deviation | None] = {}
    for subject in subjects(count):
        worst: Deviation | None = None
        for size in sizes:
            for seed in range(seeds):
                apart = compare(subject, size, embeddings(size, seed))
                worst = worst if apart is None else apart if worst is None else worst | apart
        found[subject.name] = worst
    return found


def from_formula(subject: Subject, size: Size, z: Tensor, *, dtype: torch.dtype = torch.float32) -> Deviation:
    """reglet in `dtype`, the formula in float64, on the same numbers."""
    return _compare(subject, size, z.to(dtype), subject.formula, torch.float64)


def naive(subject: Subject, size: Size, z: Tensor) -> Deviation:
    """The formula in float32 against itself in float64: what float32 costs without any algebra of ours."""
    with slices(directions(subject.make(), z)):
        found, true = (value_and_gradient(lambda z: subject.formula(z, size.n_global), x) for x in (z, z.double()))
    return deviation(found, true)


def from_lightly(subject: Subject, size: Size, z: Tensor) -> Deviation | None:
    """Both in float32.  None where lightly has no such loss, or does not take such views."""
    lightly = lightly_losses()
    if lightly is None or subject.peer is None or not subject.peer_takes(size.v, size.n_global):
        return None
    return _compare(subject, size, z, subject.peer(lightly), torch.float32)


def _compare(subject: Subject, size: Size, z: Tensor, other: Loss, dtype: torch.dtype) -> Deviation:
    loss = subject.make()
    w = directions(loss, z)
    ours = value_and_gradient(lambda z: subject.ours(loss)(z, size.n_global), z)
    with slices(w):
        return deviation(ours, value_and_gradient(lambda z: other(z, size.n_global), z.to(dtype)))
