"""The contracting half of U-Net.  Ronneberger et al., MICCAI 2015, arXiv:1505.04597."""

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.segmentation.convolution import conv_norm


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
