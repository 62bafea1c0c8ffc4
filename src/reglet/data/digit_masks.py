"""Where the ink of the embedded digits is: for tasks that ask about places."""

from typing import NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from reglet.data.digits import Digits, canvas_digits, place

CONTRAST = 40  # of 255, mean over colours: about half of the faintest digit's


class MaskedDigits(NamedTuple):
    digits: Digits
    grounds: UInt8[Tensor, "n 3 32 32"]  # the same canvases without a digit
    masks: UInt8[Tensor, "n 32 32"]  # 0 for the ground, 1 + digit on the ink


def masked_digits(*, seed: int = 0) -> MaskedDigits:
    """All 1,797 of `canvas_digits`, in the source's order.

    >>> found = masked_digits()
    >>> found.masks.shape, int(found.masks.max())
    (torch.Size([1797, 32, 32]), 10)
    """
    digits = canvas_digits("all", seed=seed)
    n = len(digits.labels)
    grounds = place(torch.zeros(n, 8, 8), digits.labels, torch.arange(n), seed=seed).images
    ink = (digits.images.float() - grounds).abs().mean(1) > CONTRAST
    return MaskedDigits(digits, grounds, (ink * (1 + digits.labels).view(-1, 1, 1)).to(torch.uint8))
