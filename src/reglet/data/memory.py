"""Images that are in memory already."""

import hashlib
from collections.abc import Sequence

import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from reglet.data.images import Pixels
from reglet.data.part import Part
from reglet.views.crop import Crops, resized_crop


class InMemory:
    """A tensor of images, with labels and domains if there are any.  It may be mapped from a file.

    images: uint8, uint16 or floating point in [0, 1].
    fingerprint: for images that are too many to be read for it; default: computed from all images.

    >>> data = InMemory(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), labels=torch.tensor([0, 1, 0, 1]), name="blank")
    >>> len(data), data.classes
    (4, ['0', '1'])
    """

    def __init__(
        self,
        images: Shaped[Tensor, "n c h w"],
        *,
        labels: Int64[Tensor, " n"] | None = None,
        domain: Int64[Tensor, " n"] | None = None,
        classes: Sequence[str] | None = None,
        domains: Sequence[str] | None = None,
        name: str,
        fingerprint: str = "",
    ) -> None:
        if images.dtype not in (torch.uint8, torch.uint16) and not images.is_floating_point():
            raise TypeError(f"{name}: images are uint8, uint16 or floating point in [0, 1], got {images.dtype}")
        for what, known in (("labels", labels), ("domain", domain)):
            if known is not None and len(known) != len(images):
                raise ValueError(f"{name} has {len(images)} images and {len(known)} {what}")
        self.images, self.labels, self.domain, self.name = images, labels, domain, name
        self.classes, self.domains = _names(classes, labels, "labels"), _names(domains, domain, "domain")
        self.fingerprint = fingerprint or _digest(images, labels, domain)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, index: Int64[Tensor, " b"]) -> Pixels:
        """As they are."""
        chosen = self.images[index]
        return chosen.float() / 65535 if chosen.dtype == torch.uint16 else chosen

    def whole(self, index: Int64[Tensor, " b"]) -> Pixels:
        return self.batch(index)

    def sizes(self, index: Int64[Tensor, " b"]) -> Int64[Tensor, "b 2"]:
        return torch.tensor(self.images.shape[2:]).expand(len(index), 2)

    def crops(self, index: Int64[Tensor, " b"], asked: Sequence[Crops]) -> list[Pixels]:
        x = self.whole(index)
        return [resized_crop(x, c.boxes, size=c.size, interpolation=c.interpolation).clamp_(0, 1) for c in asked]

    def names(self, index: Int64[Tensor, " b"]) -> None:
        return None

    def content(self, index: Int64[Tensor, " b"]) -> list[bytes]:
        return [hashlib.blake2b(self.images[i].numpy().tobytes(), digest_size=16).digest() for i in index.tolist()]

    def part(self, index: Int64[Tensor, " b"], *, name: str) -> Part:
        return Part(self, index, name=name)


def _names(given: Sequence[str] | None, numbers: Tensor | None, what: str) -> list[str] | None:
    if numbers is None:
        return None
    if len(numbers) and int(numbers.min()) < 0:
        raise ValueError(f"{what} are numbers from 0, got {int(numbers.min())}")
    most = int(numbers.max()) + 1 if len(numbers) else 0
    names = [str(i) for i in range(most)] if given is None else list(given)
    if most > len(names):
        raise ValueError(f"{what} reach {most - 1}, but there are {len(names)} names")
    return names


def _digest(*tensors: Tensor | None) -> str:
    state = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            state.update(repr(tuple(tensor.shape)).encode())
            state.update(tensor.contiguous().numpy().tobytes())
    return state.hexdigest()[:16]
