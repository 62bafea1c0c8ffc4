"""Images that are in memory already."""

import hashlib
from collections.abc import Sequence

from jaxtyping import Int64, UInt8
from torch import Tensor


class InMemory:
    """A tensor of images, with labels and domains where there are any.

    >>> import torch
    >>> data = InMemory(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), labels=torch.tensor([0, 1, 0, 1]), name="blank")
    >>> len(data), data.classes
    (4, ['0', '1'])
    """

    def __init__(
        self,
        images: UInt8[Tensor, "n c h w"],
        *,
        labels: Int64[Tensor, " n"] | None = None,
        domain: Int64[Tensor, " n"] | None = None,
        classes: Sequence[str] | None = None,
        domains: Sequence[str] | None = None,
        name: str,
    ) -> None:
        for what, known in (("labels", labels), ("domain", domain)):
            if known is not None and len(known) != len(images):
                raise ValueError(f"{name} has {len(images)} images and {len(known)} {what}")
        self.images, self.labels, self.domain, self.name = images, labels, domain, name
        self.classes, self.domains = _names(classes, labels, "labels"), _names(domains, domain, "domain")
        self.fingerprint = _digest(images, labels, domain)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, index: Int64[Tensor, " b"]) -> UInt8[Tensor, "b c h w"]:
        return self.images[index]


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
