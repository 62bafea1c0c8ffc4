"""Heads that name the class of every pixel from the last map of a U-Net.

FCN         fully convolutional network.  Long et al., CVPR 2015, arXiv:1411.4038
PSP         pyramid pooling.  Zhao et al., CVPR 2017, arXiv:1612.01105
DeepLabV3   atrous spatial pyramid pooling.  Chen et al. 2017, arXiv:1706.05587
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.segmentation.unet import conv_norm, of_means


class FCNHead(nn.Module):
    """Convolutions, then a linear map at each place.

    convs: the number of 3 x 3 convolutions, `dim` wide.  0: only the linear map, as at the end of U-Net.
    The paper adds the scores of several depths; after a U-Net that is not needed.

    >>> import torch
    >>> FCNHead(8, classes=3)(torch.randn(2, 8, 16, 16)).shape
    torch.Size([2, 3, 16, 16])
    """

    def __init__(self, c_in: int, classes: int, *, dim: int = 16, convs: int = 1) -> None:
        super().__init__()
        widths = [c_in] + convs * [dim]
        self.convs = nn.Sequential(*(conv_norm(a, dim) for a in widths[:-1]))
        self.classify = nn.Conv2d(widths[-1], classes, 1)

    def forward(self, y: Float[Tensor, "n d h w"]) -> Float[Tensor, "n classes h w"]:
        logits: Tensor = self.classify(self.convs(y))
        return logits


class PSPHead(nn.Module):
    """The map beside its means over 1, 2 x 2, 3 x 3 and 6 x 6 parts, each brought to `dim` channels by a 1 x 1
    convolution and back to the map's size bilinearly; a 3 x 3 convolution of all; a linear map.

    dim: the paper has a quarter of the map's width.  Means are normalized as in `of_means`.  The auxiliary loss is left
    out.

    >>> PSPHead(8, classes=3)(torch.randn(2, 8, 16, 16)).shape
    torch.Size([2, 3, 16, 16])
    """

    def __init__(self, c_in: int, classes: int, *, dim: int = 16, bins: Sequence[int] = (1, 2, 3, 6)) -> None:
        super().__init__()
        self.bins = tuple(bins)
        self.pyramid = nn.ModuleList(of_means(c_in, dim) for _ in self.bins)
        self.merge = conv_norm(c_in + len(self.bins) * dim, dim)
        self.classify = nn.Conv2d(dim, classes, 1)

    def forward(self, y: Float[Tensor, "n d h w"]) -> Float[Tensor, "n classes h w"]:
        size = y.shape[2:]
        levels = [level(F.adaptive_avg_pool2d(y, bins)) for level, bins in zip(self.pyramid, self.bins, strict=True)]
        wide = [F.interpolate(part, size=size, mode="bilinear", align_corners=False) for part in levels]
        logits: Tensor = self.classify(self.merge(torch.cat([y, *wide], dim=1)))
        return logits


class DeepLabV3Head(nn.Module):
    """Five readings of the map side by side, a 1 x 1 convolution of them, and a linear map: a 1 x 1 convolution, three
    3 x 3 with their taps `rates` apart, and the mean over the whole map.

    rates: the paper's, for a map of an eighth or a sixteenth of the image's size.  The mean is normalized as in
    `of_means`.

    >>> DeepLabV3Head(8, classes=3)(torch.randn(2, 8, 16, 16)).shape
    torch.Size([2, 3, 16, 16])
    """

    def __init__(self, c_in: int, classes: int, *, dim: int = 16, rates: Sequence[int] = (6, 12, 18)) -> None:
        super().__init__()
        atrous = [conv_norm(c_in, dim, dilation=rate) for rate in rates]
        self.local = nn.ModuleList([conv_norm(c_in, dim, kernel=1), *atrous])
        self.whole = of_means(c_in, dim)
        self.merge = conv_norm((len(self.local) + 1) * dim, dim, kernel=1)
        self.classify = nn.Conv2d(dim, classes, 1)

    def forward(self, y: Float[Tensor, "n d h w"]) -> Float[Tensor, "n classes h w"]:
        whole = self.whole(y.mean((2, 3), keepdim=True)).expand(-1, -1, *y.shape[2:])
        logits: Tensor = self.classify(self.merge(torch.cat([*(read(y) for read in self.local), whole], dim=1)))
        return logits
