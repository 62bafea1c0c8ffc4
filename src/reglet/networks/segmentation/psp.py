"""Pyramid pooling.  Zhao et al., CVPR 2017, arXiv:1612.01105."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.segmentation.convolution import conv_norm, of_means


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
