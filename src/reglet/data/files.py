"""Encoded images by number: what folders, tables, tar shards and named data sets have in common."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Int64
from torch import Tensor


class Known(NamedTuple):
    """What is known about each image; the names are in the order of the numbers."""

    labels: Int64[Tensor, " n"] | None = None
    classes: list[str] | None = None
    domain: Int64[Tensor, " n"] | None = None
    domains: list[str] | None = None


@runtime_checkable
class Files(Protocol):
    """Files are opened when they are read, and not before."""

    name: str
    fingerprint: str
    known: Known

    def __len__(self) -> int: ...

    def file_name(self, i: int) -> str: ...

    def open(self, i: int) -> Any:
        """A binary file to be read once, or a Pillow image."""
        ...

    def length(self, i: int) -> int:
        """In bytes, where that can be told without reading; files of different lengths differ.  Otherwise 0."""
        ...


def numbered(names: Sequence[str]) -> tuple[Int64[Tensor, " n"], list[str]]:
    """Each name's place among all names, sorted; and these.

    >>> numbered(["dog", "cat", "dog"])
    (tensor([1, 0, 1]), ['cat', 'dog'])
    """
    every = sorted(set(names))
    place = {name: i for i, name in enumerate(every)}
    return torch.tensor([place[name] for name in names], dtype=torch.int64), every
