"""Encoded images by number: the common interface of folders, tables, tar shards and named data sets."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor


class Known(NamedTuple):
    """Labels and domains of each image, as numbers.  The names are in the order of the numbers."""

    labels: Int64[Tensor, " n"] | None = None
    classes: list[str] | None = None
    domain: Int64[Tensor, " n"] | None = None
    domains: list[str] | None = None


@runtime_checkable
class Files(Protocol):
    """Files are opened only when they are read."""

    name: str
    fingerprint: str
    known: Known

    @property
    def lengths(self) -> NDArray[np.int64] | None:
        """The length of each file in bytes, if known without reading.  Files of different lengths differ."""

    def __len__(self) -> int: ...

    def file_name(self, i: int) -> str: ...

    def open(self, i: int) -> Any:
        """A binary file to be read once, or a Pillow image."""
        ...


def numbered(names: Sequence[str]) -> tuple[Int64[Tensor, " n"], list[str]]:
    """The number of each name among all names in sorted order, and the sorted names.

    >>> numbered(["dog", "cat", "dog"])
    (tensor([1, 0, 1]), ['cat', 'dog'])
    """
    every = sorted(set(names))
    place = {name: i for i, name in enumerate(every)}
    return torch.tensor([place[name] for name in names], dtype=torch.int64), every


def in_order(numbers: NDArray[np.int64], names: Mapping[str, int]) -> tuple[NDArray[np.int64], list[str]]:
    """Renumber: numbers in the order in which names came become their places in sorted order.  -1 stays.

    >>> in_order(np.array([0, 1, -1, 0]), {"dog": 0, "cat": 1})
    (array([ 1,  0, -1,  1]), ['cat', 'dog'])
    """
    every = sorted(names)
    place = np.full(len(every) + 1, -1)
    place[[names[name] for name in every]] = np.arange(len(every))
    return place[numbers], every


def readable(name: str) -> str:
    """A file's name as text that can be printed and stored: bytes that are not UTF-8 become \\xe9."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def is_utf8(name: str) -> bool:
    return readable(name) == name
