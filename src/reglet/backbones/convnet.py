"""A small convolutional network for experiments that end in minutes on a CPU."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.protocol import Grid, map_tokens


class ConvNet(nn.Module):
    """Stages of `depth` convolutions (3 x 3, batch norm, ReLU), each stage at half the resolution of the one before.

    The output is the last stage's map averaged over its positions, (n, dim); `.forward_map(x)` gives the map.
    stride: of the first stage; 2 saves most of the time.

    >>> import torch
    >>> net = ConvNet(widths=(32, 64, 128), depth=2, stride=2)
    >>> net(torch.zeros(2, 3, 32, 32)).shape, net.forward_map(torch.zeros(2, 3, 32, 32)).shape
    (torch.Size([2, 128]), torch.Size([2, 128, 4, 4]))
    """

    def __init__(
        self, *, widths: Sequence[int] = (16, 32, 64, 128), depth: int = 1, stride: int = 1, in_channels: int = 3
    ) -> None:
        super().__init__()
        if not widths or min(*widths, depth, stride, in_channels) < 1:
            raise ValueError(
                "ConvNet needs at least one width, and positive numbers throughout; "
                f"got {widths=}, {depth=}, {stride=}, {in_channels=}"
            )
        stages, d_in = [], in_channels
        for i, width in enumerate(widths):
            stages.append(_stage(d_in, width, depth=depth, stride=2 if i else stride))
            d_in = width
        self.stages = nn.Sequential(*stages)
        self.dim = d_in

    def forward_map(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h2 w2"]:
        y: Tensor = self.stages(x)
        return y

    def tokens(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Grid]:
        """The places of the feature map before pooling, row by row, and the grid that they fill."""
        return map_tokens(self.forward_map(x))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        return self.forward_map(x).mean((2, 3))


def _stage(d_in: int, d_out: int, *, depth: int, stride: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(depth):
        conv = nn.Conv2d(d_out if i else d_in, d_out, 3, stride=1 if i else stride, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(d_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
