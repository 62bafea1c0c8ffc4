"""A data set as an encoder wants to see it."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from reglet.data import Images
from reglet.data.images import Pixels
from reglet.evaluate.preparation import Preparation
from reglet.views.crop import Crops


class Framed:
    """`images`, of which `batch` gives squares of the encoder's size, framed as `preparation` says; grey ones as RGB.

    >>> from reglet.data import load
    >>> seen = Framed(load("digits", split="test"), Preparation(40, 48))
    >>> seen.batch(torch.arange(2)).shape
    torch.Size([2, 3, 40, 40])
    """

    def __init__(self, images: Images, preparation: Preparation) -> None:
        self.of, self.preparation, self.name, self.fingerprint = images, preparation, images.name, images.fingerprint
        self.labels, self.domain, self.classes, self.domains = (
            images.labels, images.domain, images.classes, images.domains,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.of)

    @property
    def unreadable(self) -> Any:
        return getattr(self.of, "unreadable", None)

    @property
    def pool(self) -> Any:
        return getattr(self.of, "pool", None)

    def batch(self, index: Int64[Tensor, " b"]) -> Pixels:
        how = self.preparation
        asked = Crops(self._boxes(index), how.resize, how.interpolation, exact=True)
        (x,) = self.of.crops(index, [asked])
        if x.dtype != torch.uint8 and self.of.batch(index[:1]).dtype == torch.uint8:
            x = (x * 255).round().to(torch.uint8)  # bytes stay bytes, as in every library that reads files
        x = how.cut(x)
        return x.expand(-1, 3, -1, -1) if x.shape[1] == 1 and len(how.mean) == 3 else x

    def _boxes(self, index: Int64[Tensor, " b"]) -> Int64[Tensor, "b 4"]:
        sizes = self.of.sizes(index)
        if self.preparation.frame == "whole":
            return torch.cat([torch.zeros_like(sizes), sizes], 1)
        side = sizes.min(1, keepdim=True).values.expand(-1, 2)
        return torch.cat([(sizes - side) // 2, side], 1)

    def whole(self, index: Int64[Tensor, " b"]) -> Pixels | None:
        return self.of.whole(index)

    def sizes(self, index: Int64[Tensor, " b"]) -> Int64[Tensor, "b 2"]:
        return self.of.sizes(index)

    def crops(self, index: Int64[Tensor, " b"], asked: Sequence[Crops]) -> list[Pixels]:
        return self.of.crops(index, asked)

    def names(self, index: Int64[Tensor, " b"]) -> list[str] | None:
        return self.of.names(index)

    def content(self, index: Int64[Tensor, " b"]) -> list[bytes]:
        return self.of.content(index)

    def part(self, index: Int64[Tensor, " b"], *, name: str) -> "Framed":
        return Framed(self.of.part(index, name=name), self.preparation)
