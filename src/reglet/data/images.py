"""What a data set is to everything else: images by index, and what is known about each."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from reglet.views.crop import Crops

Pixels = UInt8[Tensor, "b c h w"] | Float[Tensor, "b c h w"]  # 0 to 255, or 0 to 1 where a byte is not enough


@runtime_checkable
class Images(Protocol):
    """Images, each with a label and a domain where the source has them.

    Evaluation takes `batch`.  Training takes `whole` where all images are of one size and in memory, and crops them on
    its device.  Otherwise it asks for `sizes`, draws boxes for them, and takes `crops`.

    fingerprint: changes when the data do, so that a run is not resumed on others.

    >>> from reglet.data import load
    >>> isinstance(load("digits", split="test"), Images)
    True
    """

    name: str
    fingerprint: str
    labels: Int64[Tensor, " n"] | None
    domain: Int64[Tensor, " n"] | None
    classes: list[str] | None
    domains: list[str] | None

    def __len__(self) -> int: ...

    def batch(self, index: Int64[Tensor, " b"]) -> Pixels:
        """The images at `index`, in that order and of one size: resized, and the middle cut out."""
        ...

    def whole(self, index: Int64[Tensor, " b"]) -> Pixels | None:
        """The same, uncut; None where images have different sizes or are not in memory."""
        ...

    def sizes(self, index: Int64[Tensor, " b"]) -> Int64[Tensor, "b 2"]:
        """Height and width of each whole image."""
        ...

    def crops(self, index: Int64[Tensor, " b"], asked: Sequence[Crops]) -> list[Pixels]:
        """For each of `asked` its box of each image, resized.  An image is decoded once for all of them."""
        ...

    def names(self, index: Int64[Tensor, " b"]) -> list[str] | None:
        """What the images are called: files, where they come from files."""
        ...

    def content(self, index: Int64[Tensor, " b"]) -> list[bytes]:
        """A digest of each image: equal where the images are."""
        ...

    def part(self, index: Int64[Tensor, " b"], *, name: str) -> "Images":
        """These images as a data set of their own."""
        ...
