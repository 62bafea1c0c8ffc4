"""Some of the images of a data set."""

import hashlib

from jaxtyping import Int64, UInt8
from torch import Tensor

from reglet.data.images import Images


class Part:
    """`images` at `index`, with their labels and domains; the names of classes stay those of the whole."""

    def __init__(self, images: Images, index: Int64[Tensor, " m"], *, name: str) -> None:
        self.whole, self.index, self.name = images, index, f"{images.name}/{name}"
        self.labels = None if images.labels is None else images.labels[index]
        self.domain = None if images.domain is None else images.domain[index]
        self.classes, self.domains = images.classes, images.domains
        state = hashlib.sha256(images.fingerprint.encode())
        state.update(index.contiguous().numpy().tobytes())
        self.fingerprint = state.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.index)

    def batch(self, index: Int64[Tensor, " b"]) -> UInt8[Tensor, "b c h w"]:
        return self.whole.batch(self.index[index])
