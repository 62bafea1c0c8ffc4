"""The squared distance between the tokens of two places.

    L = mean over samples, tokens and features of (z - target)^2

FitNets (Romero et al., ICLR 2015, arXiv:1412.6550) has half the sum over features, behind a regressor where widths
differ.  `unit=True` compares directions: vectors of length 1, and the sum over features, which is 2 - 2 cos.
"""

from torch import nn

from reglet import check
from reglet.blocks import pair
from reglet.blocks.pair import Tokens
from reglet.precision import no_autocast
from reglet.types import Scalar


class L2(nn.Module):
    """
    >>> import torch
    >>> L2()(torch.ones(2, 3, 4), 3 * torch.ones(2, 3, 4)).item()
    4.0
    """

    def __init__(self, *, unit: bool = False) -> None:
        super().__init__()
        check.flag(unit=unit)
        self.unit = unit

    def extra_repr(self) -> str:
        return f"unit={self.unit}"

    def forward(self, z: Tokens, target: Tokens) -> Scalar:
        z, target = pair.checked(z, target)
        with no_autocast(z):
            if self.unit:
                return (pair.unit(z) - pair.unit(target)).square().sum(-1).mean()
            value = (z - target).square().mean()
        check.no_overflow("L2", {"distance": value}, z, target)
        return value
