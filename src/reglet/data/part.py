"""Some of the images of a data set."""

import hashlib
from collections.abc import Sequence
from typing import Any

from jaxtyping import Int64
from torch import Tensor

from reglet.data.images import Images, Pixels
from reglet.views.crop import Crops


class Part:
    """`images` at `index`, with their labels and domains; the names of classes stay those of the whole.

    >>> from reglet.data import load
    >>> digits = load("digits", split="test")
    >>> zeros = Part(digits, (digits.labels == 0).nonzero().flatten(), name="zeros")
    >>> zeros.labels.unique().tolist(), zeros.classes[:3]
    ([0], ['0', '1', '2'])
    """

    def __init__(self, images: Images, index: Int64[Tensor, " m"], *, name: str) -> None:
        self.of, self.index, self.name = images, index, f"{images.name}/{name}"
        self.labels = None if images.labels is None else images.labels[index]
        self.domain = None if images.domain is None else images.domain[index]
        self.classes, self.domains = images.classes, images.domains
        state = hashlib.sha256(images.fingerprint.encode())
        state.update(index.contiguous().numpy().tobytes())
        self.fingerprint = state.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def unreadable(self) -> Any:
        """The unreadable files of the whole set, if it is made of files."""
        return getattr(self.of, "unreadable", None)

    @property
    def pool(self) -> Any:
        """The threads that decode, if the whole set is made of files."""
        return getattr(self.of, "pool", None)

    def batch(self, index: Int64[Tensor, " b"]) -> Pixels:
        return self.of.batch(self.index[index])

    def whole(self, index: Int64[Tensor, " b"]) -> Pixels | None:
        return self.of.whole(self.index[index])

    def sizes(self, index: Int64[Tensor, " b"]) -> Int64[Tensor, "b 2"]:
        return self.of.sizes(self.index[index])

    def crops(self, index: Int64[Tensor, " b"], asked: Sequence[Crops]) -> list[Pixels]:
        return self.of.crops(self.index[index], asked)

    def names(self, index: Int64[Tensor, " b"]) -> list[str] | None:
        return self.of.names(self.index[index])

    def content(self, index: Int64[Tensor, " b"]) -> list[bytes]:
        return self.of.content(self.index[index])

    def part(self, index: Int64[Tensor, " b"], *, name: str) -> "Part":
        return Part(self, index, name=name)
