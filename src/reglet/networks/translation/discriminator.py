"""PatchGAN: a verdict for every patch.  Isola et al., CVPR 2017, arXiv:1611.07004, as CUT uses it.

Two convolutions of stride 2 and two of stride 1, all 4 x 4: a verdict sees 34 px (70 there, with one more).
"""

from jaxtyping import Float
from torch import Tensor, nn


class PatchDiscriminator(nn.Module):
    """Images -> a map of verdicts, one for each patch; 1 is "real"."""

    def __init__(self, *, width: int = 16, channels: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1, bias=False),
            nn.InstanceNorm2d(2 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, padding=1, bias=False),
            nn.InstanceNorm2d(4 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(4 * width, 1, 4, padding=1),
        )

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 1 h2 w2"]:
        y: Tensor = self.layers(x)
        return y
