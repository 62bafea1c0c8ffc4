"""What a data set is to everything else: images by index, and what is known about each."""

from typing import Protocol, runtime_checkable

from jaxtyping import Int64, UInt8
from torch import Tensor


@runtime_checkable
class Images(Protocol):
    """Images of one size, each with a label and a domain where the source has them.

    fingerprint: changes when the data do, so that a run is not resumed on others.
    """

    name: str
    fingerprint: str
    labels: Int64[Tensor, " n"] | None
    domain: Int64[Tensor, " n"] | None
    classes: list[str] | None
    domains: list[str] | None

    def __len__(self) -> int: ...

    def batch(self, index: Int64[Tensor, " b"]) -> UInt8[Tensor, "b c h w"]:
        """The images at `index`, in that order."""
        ...
