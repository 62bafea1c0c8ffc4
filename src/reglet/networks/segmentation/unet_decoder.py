"""The expanding half of U-Net.  Ronneberger et al., MICCAI 2015, arXiv:1505.04597."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.segmentation.unet_encoder import double


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
