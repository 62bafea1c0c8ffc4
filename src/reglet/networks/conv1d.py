"""A small 1-D conv net: windows of a series (channels, length) to embeddings."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ConvNet1d(nn.Module):
    """Stages of a convolution over 5 places, batch norm and ReLU, each at half the length of the one before; then mean
    and maximum over what is left, (n, dim).

    >>> ConvNet1d(channels=38)(torch.zeros(2, 38, 64)).shape
    torch.Size([2, 128])
    """

    sim_blocks = ("stages.1", "stages.2")

    def __init__(self, *, channels: int, widths: Sequence[int] = (32, 64, 64)) -> None:
        super().__init__()
        if not widths or min(channels, *widths) < 1:
            raise ValueError(f"expected channels and at least one width, all positive; got {channels} and {widths}")
        pairs = zip((channels, *widths), widths, strict=False)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(nn.Conv1d(a, b, 5, stride=2, padding=2, bias=False), nn.BatchNorm1d(b), nn.ReLU())
                for a, b in pairs
            )
        )
        self.dim = 2 * widths[-1]

    def forward(self, x: Float[Tensor, "n channels t"]) -> Float[Tensor, "n d"]:
        y = self.stages(x)
        return torch.cat([y.mean(2), y.amax(2)], dim=1)
