"""The interface of a data set: images by index, with labels and domains."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from reglet.views.crop import Crops

Pixels = UInt8[Tensor, "b c h w"] | Float[Tensor, "b c h w"]  # 0 to 255, or 0 to 1 where a byte is not enough


@runtime_checkable
class Images(Protocol):
    """Images, with labels and domains if the source has them.

    Evaluation takes `batch`.  If all images have one size and are in memory, training takes `whole` and crops them on
    its device.  Otherwise it draws boxes for the `sizes`, and takes `crops`.

    fingerprint: changes with the data, so that a run is not resumed on other data.

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
        """The images at `index`, in that order, brought to one size: resized, and the middle cut out."""
        ...

    def whole(self, index: Int64[Tensor, " b"]) -> Pixels | None:
        """The same, uncut; None if images have different sizes or are not in memory."""
        ...

    def sizes(self, index: Int64[Tensor, " b"]) -> Int64[Tensor, "b 2"]:
        """Height and width of each whole image."""
        ...

    def crops(self, index: Int64[Tensor, " b"], asked: Sequence[Crops]) -> list[Pixels]:
        """For each entry of `asked`, its box of each image, resized.  An image is decoded once for all of them."""
        ...

    def names(self, index: Int64[Tensor, " b"]) -> list[str] | None:
        """Names of the images, such as their files."""
        ...

    def content(self, index: Int64[Tensor, " b"]) -> list[bytes]:
        """A digest of each image.  Equal images have equal digests."""
        ...

    def part(self, index: Int64[Tensor, " b"], *, name: str) -> "Images":
        """These images as a data set."""
        ...
