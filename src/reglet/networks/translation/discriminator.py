"""PatchGAN: a verdict for every patch.  Isola et al., CVPR 2017, arXiv:1611.07004, as CUT uses it.

Convolutions of 4 x 4: `halvings` of stride 2, each twice as wide as the one before, then two of stride 1.  With three
halvings a verdict sees 70 px, as in the paper; with two, 34 px.
"""

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn


class PatchDiscriminator(nn.Module):
    """Images -> a map of verdicts, one for each patch; 1 is "real".

    >>> import torch
    >>> PatchDiscriminator(width=8)(torch.rand(2, 3, 64, 64)).shape
    torch.Size([2, 1, 6, 6])
    """

    def __init__(self, *, width: int = 64, halvings: int = 3, channels: int = 3) -> None:
        super().__init__()
        if min(width, halvings, channels) < 1:
            raise ValueError(f"a discriminator needs positive numbers, got {width=}, {halvings=}, {channels=}")
        widths = [width << i for i in range(halvings + 1)]
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
        for i, (c_in, c_out) in enumerate(pairwise(widths), start=1):
            stride = 2 if i < halvings else 1
            layers.append(nn.Conv2d(c_in, c_out, 4, stride=stride, padding=1, bias=False))
            layers += [nn.InstanceNorm2d(c_out), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4, padding=1))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 1 h2 w2"]:
        y: Tensor = self.layers(x)
        return y


def patch_discriminator_small(*, width: int = 16, channels: int = 3) -> PatchDiscriminator:
    """A quarter of the width and one halving fewer: images of 32 px are more than one patch.

    >>> import torch
    >>> patch_discriminator_small()(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 1, 6, 6])
    """
    return PatchDiscriminator(width=width, halvings=2, channels=channels)
