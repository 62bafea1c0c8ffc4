"""Atrous spatial pyramid pooling.  Chen et al. 2017, arXiv:1706.05587 (DeepLabV3)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.segmentation.convolution import conv_norm, of_means


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
