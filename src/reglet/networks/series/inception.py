"""The mean of convolutions of several sizes, in one."""

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Inception(nn.Module):
    """mean over i < sizes of Conv_{2i + 1}(x), as in TimesNet's code.

    Nothing stands between these convolutions and their mean, so it is one convolution, whose kernel is the mean of the
    kernels, each filled up by zeros to the size of the largest.  That is how it is computed.
    """

    def __init__(self, d_in: int, d_out: int, *, sizes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(d_in, d_out, 2 * i + 1, padding=i) for i in range(sizes))
        for conv in self.convs:
            conv = cast(nn.Conv2d, conv)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(cast(Tensor, conv.bias))

    def forward(self, x: Float[Tensor, "n d h w"]) -> Float[Tensor, "n e h w"]:
        convs = [cast(nn.Conv2d, conv) for conv in self.convs]
        reach = len(convs) - 1
        weights = [F.pad(conv.weight, [reach - i] * 4) for i, conv in enumerate(convs)]
        bias = torch.stack([cast(Tensor, conv.bias) for conv in convs]).mean(0)
        return F.conv2d(x, torch.stack(weights).mean(0), bias, padding=reach)
