"""Leave one domain out, with DomainBed's 80/20 splits.  Gulrajani and Lopez-Paz, ICLR 2021, arXiv:2007.01434."""

from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from reglet.data.splits import hold_out

Index = Int64[Tensor, "_"]


class Split(NamedTuple):
    """Samples by their use.  `test` is reported; `oracle` is the validation part of the test domain.

    >>> split = leave_out(torch.arange(20) % 2, 0)  # test on domain 0, train on domain 1
    >>> len(split.train), {d: len(part) for d, part in split.validation.items()}, len(split.test), len(split.oracle)
    (8, {1: 2}, 8, 2)
    """

    train: Index
    validation: dict[int, Index]  # of each training domain
    test: Index
    oracle: Index


def by_domain(domain: Int64[Tensor, " n"], *, fraction: float = 0.2, seed: int = 0) -> dict[int, tuple[Index, Index]]:
    """The larger and the smaller part of every domain.  They do not depend on the other domains.

    >>> {d: (len(larger), len(smaller)) for d, (larger, smaller) in by_domain(torch.arange(20) % 2).items()}
    {0: (8, 2), 1: (8, 2)}
    """
    parts = {}
    for d in domain.unique().tolist():
        members = (domain == d).nonzero()[:, 0]
        try:
            large, small = hold_out(len(members), fraction, seed=(seed << 16) + d)
        except ValueError as error:
            raise ValueError(f"domain {d}: {error}") from None
        parts[d] = (members[large], members[small])
    return parts


def leave_out(domain: Int64[Tensor, " n"], *left_out: int, fraction: float = 0.2, seed: int = 0) -> Split:
    """Train on the larger parts of the other domains, validate on their smaller parts, test on the first left out.

    Leave-one-domain-out validation leaves out two domains: `leave_out(domain, d, test)` for every other domain d.  The
    accuracies on d then choose the model for `test`.

    A class that a domain lacks is not trained or tested there.

    >>> split = leave_out(torch.arange(30) % 3, 2)
    >>> (torch.arange(30) % 3)[split.test].unique().tolist(), sorted(split.validation)
    ([2], [0, 1])
    """
    parts = by_domain(domain, fraction=fraction, seed=seed)
    missing = [d for d in left_out if d not in parts]
    if not left_out or missing or len(set(left_out)) != len(left_out) or len(left_out) >= len(parts):
        have = ", ".join(map(str, parts))
        raise ValueError(f"leave out one or more domains, not all and none twice, of {have}; got {left_out}")
    trained = [d for d in parts if d not in left_out]
    test, oracle = parts[left_out[0]]
    return Split(torch.cat([parts[d][0] for d in trained]), {d: parts[d][1] for d in trained}, test, oracle)
