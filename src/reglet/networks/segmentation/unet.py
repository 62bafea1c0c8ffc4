"""The contracting and the expanding half of U-Net.  Ronneberger et al., MICCAI 2015, arXiv:1505.04597."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def conv_norm(c_in: int, c_out: int, *, kernel: int = 3, dilation: int = 1) -> nn.Sequential:
    """Convolution that keeps height and width, batch norm, ReLU."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(c_in, c_out, kernel, padding=padding, dilation=dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out), nn.ReLU())


def of_means(c_in: int, c_out: int) -> nn.Sequential:
    """1 x 1 convolution of means over parts of a map, norm, ReLU.

    The norm is a group norm of one group, for each image, where the papers have batch norm.  A small batch has too few
    means for batch norm: with it, half of our runs with PSP predicted only background.
    """
    return nn.Sequential(nn.Conv2d(c_in, c_out, 1, bias=False), nn.GroupNorm(1, c_out), nn.ReLU())


class UNetEncoder(nn.Module):
    """Stages of two 3 x 3 convolutions, with a 2 x 2 max pooling between one stage and the next.

    The paper has no padding and no norm.  Here convolutions keep the size and have batch norm, as in mmsegmentation,
    which rhoSIM's paper trained with.

    Gives the map of every stage, the finest first.

    >>> import torch
    >>> [tuple(y.shape[1:]) for y in UNetEncoder(widths=(8, 16, 32))(torch.zeros(1, 3, 32, 64))]
    [(8, 32, 64), (16, 16, 32), (32, 8, 16)]
    """

    def __init__(self, *, widths: Sequence[int] = (64, 128, 256, 512, 1024), in_channels: int = 3) -> None:
        super().__init__()
        if not widths or min(*widths, in_channels) < 1:
            raise ValueError(f"expected a width for each stage, from 1 on; got {tuple(widths)} on {in_channels}")
        before = (in_channels, *widths[:-1])
        self.stages = nn.ModuleList(double(c_in, c_out) for c_in, c_out in zip(before, widths, strict=True))
        self.widths = tuple(widths)

    @property
    def multiple(self) -> int:
        """Height and width are multiples of it."""
        return 1 << len(self.stages) - 1

    def forward(self, x: Float[Tensor, "n c h w"]) -> list[Float[Tensor, "n _ _ _"]]:
        if x.shape[2] % self.multiple or x.shape[3] % self.multiple:
            raise ValueError(
                f"{len(self.stages)} stages halve an image {len(self.stages) - 1} times: height and width must be "
                f"multiples of {self.multiple}, got {x.shape[2]} x {x.shape[3]}"
            )
        maps: list[Tensor] = []
        for stage in self.stages:
            x = stage(F.max_pool2d(x, 2) if maps else x)
            maps.append(x)
        return maps


def double(c_in: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(conv_norm(c_in, c_out), conv_norm(c_out, c_out))


class UNetDecoder(nn.Module):
    """From the coarsest map up: a 2 x 2 transposed convolution, the encoder's map of that size beside it, and two
    3 x 3 convolutions of both.

    Gives the finest map, as large as the image and widths[0] wide.

    >>> maps = [torch.randn(2, 8, 16, 16), torch.randn(2, 16, 8, 8)]  # the encoder's, the finest first
    >>> UNetDecoder(widths=(8, 16))(maps).shape
    torch.Size([2, 8, 16, 16])
    """

    def __init__(self, *, widths: Sequence[int] = (64, 128, 256, 512, 1024)) -> None:
        super().__init__()
        upward = list(pairwise(reversed(widths)))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(coarse, fine, 2, stride=2) for coarse, fine in upward)
        self.stages = nn.ModuleList(double(2 * fine, fine) for _, fine in upward)

    def forward(self, maps: Sequence[Float[Tensor, "n _ _ _"]]) -> Float[Tensor, "n c h w"]:
        if len(maps) != len(self.ups) + 1:
            raise ValueError(f"expected {len(self.ups) + 1} maps, the finest first; got {len(maps)}")
        y = maps[-1]
        for up, stage, skip in zip(self.ups, self.stages, reversed(maps[:-1]), strict=True):
            y = stage(torch.cat([skip, up(y)], dim=1))
        return y
