"""The head of a fully convolutional network.  Long et al., CVPR 2015, arXiv:1411.4038."""

from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.segmentation.convolution import conv_norm


class FCNHead(nn.Module):
    """Convolutions, then a linear map at each place.

    convs: how many, 3 x 3 and `dim` wide.  0: the linear map alone, which is what U-Net ends with.
    The paper adds the scores of several depths; after a U-Net there is no need to.

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
