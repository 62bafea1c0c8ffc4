"""Parts of a data set, as indices: pure functions of labels or domains."""

import torch
from jaxtyping import Int64
from torch import Tensor

Index = Int64[Tensor, "_"]


def some_labels(labels: Int64[Tensor, " n"], amount: float | int, *, seed: int = 0) -> Index:
    """A fraction (0 < amount <= 1, a float) or a number of samples.  Classes keep their proportions.

    Every class has at least one sample.

    >>> some_labels(torch.tensor([0, 0, 0, 0, 1, 1]), 3).numel()
    3
    """
    n, classes = len(labels), labels.unique()
    count = round(amount * n) if isinstance(amount, float) and amount <= 1 else int(amount)
    if not 1 <= count <= n or count < len(classes):
        raise ValueError(f"between {len(classes)} (one of each class) and {n} samples can be taken, got {amount}")
    members = [_shuffled(labels, int(c), seed) for c in classes]
    return (
        torch.cat([m[:k] for m, k in zip(members, _counts([len(m) for m in members], count), strict=True)])
        .sort()
        .values
    )


def some_of_each(labels: Int64[Tensor, " n"], most: int, *, each: int, seed: int = 0) -> Index:
    """Up to `most` samples in the proportions of the classes, but at least `each` of every class.

    >>> some_of_each(torch.arange(100) % 20, 10, each=2).numel()
    40
    """
    n, classes = len(labels), labels.unique()
    if n <= max(most, each * len(classes)):
        return torch.arange(n)
    if each * len(classes) <= most:
        return some_labels(labels, most, seed=seed)
    return torch.cat([_shuffled(labels, int(c), seed)[:each] for c in classes]).sort().values


def long_tail(labels: Int64[Tensor, " n"], imbalance: float, *, seed: int = 0) -> Index:
    """Makes classes rarer one by one: n_c = n_0 IF^(-c / (C - 1)), where n_0 is the size of the smallest class.

    imbalance: IF, how many times larger the first class is than the last.  Cui et al., CVPR 2019 (CIFAR-LT).
    """
    if imbalance < 1:
        raise ValueError(f"the imbalance factor is at least 1, got {imbalance}")
    classes = labels.unique()
    members = [_shuffled(labels, int(c), seed) for c in classes]
    most, last = min(len(m) for m in members), max(1, len(classes) - 1)
    counts = [max(1, int(most * imbalance ** (-i / last))) for i in range(len(classes))]
    return torch.cat([m[:k] for m, k in zip(members, counts, strict=True)]).sort().values


def leave_one_out(domain: Int64[Tensor, " n"], left_out: int) -> tuple[Index, Index]:
    """All samples of the other domains, and those of the one left out."""
    outside = domain == left_out
    if not bool(outside.any()) or bool(outside.all()):
        have = ", ".join(str(int(d)) for d in domain.unique())
        raise ValueError(f"there must be samples in domain {left_out} and in another; there are domains {have}")
    return (~outside).nonzero()[:, 0], outside.nonzero()[:, 0]


def hold_out(n: int, fraction: float, *, seed: int = 0) -> tuple[Index, Index]:
    """Two random parts, the second with `fraction` of the samples."""
    count = round(fraction * n)
    if not 0 < count < n:
        raise ValueError(f"a fraction of {fraction} leaves one of the two parts of {n} samples empty")
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(seed), device="cpu")
    return shuffled[count:].sort().values, shuffled[:count].sort().values


def _shuffled(labels: Tensor, c: int, seed: int) -> Tensor:
    """The samples of a class in an order that does not depend on the other classes."""
    members = (labels == c).nonzero()[:, 0]
    return members[
        torch.randperm(len(members), generator=torch.Generator().manual_seed((seed << 16) + c), device="cpu")
    ]


def _counts(sizes: list[int], count: int) -> list[int]:
    """`count` in proportion to `sizes`, at least one each: whole parts first, then the largest remainders."""
    n = sum(sizes)
    exact = [count * size / n for size in sizes]
    counts = [max(1, int(x)) for x in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: (int(exact[i]) - exact[i], i))
    while sum(counts) < count:
        for i in by_remainder:
            if sum(counts) < count and counts[i] < sizes[i]:
                counts[i] += 1
    while sum(counts) > count:  # the ones given to the rarest classes are taken from the largest
        counts[max(range(len(counts)), key=counts.__getitem__)] -= 1
    return counts
