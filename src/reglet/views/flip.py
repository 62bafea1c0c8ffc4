"""Mirror images left to right."""

from jaxtyping import Bool, Shaped
from torch import Tensor

from reglet.views import check


def hflip(x: Shaped[Tensor, "n c h w"], flip: Bool[Tensor, " n"]) -> Shaped[Tensor, "n c h w"]:
    """torchvision's `horizontal_flip` of the images for which `flip` is True."""
    check.images(x)
    check.one_each(x, flip=flip)
    rows = flip.nonzero()[:, 0].to(x.device)
    return x.index_copy(0, rows, x.index_select(0, rows).flip(3))
