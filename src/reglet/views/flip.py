"""Mirror images left to right."""

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from reglet.views import check


def hflip(x: Shaped[Tensor, "n c h w"], flip: Bool[Tensor, " n"]) -> Shaped[Tensor, "n c h w"]:
    """torchvision's `horizontal_flip` of the images for which `flip` is True."""
    check.images(x)
    check.one_each(x, flip=flip)
    return torch.where(flip.to(x.device)[:, None, None, None], x.flip(3), x)
