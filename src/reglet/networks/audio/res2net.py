"""Res2Net: scales within a block (Gao et al., TPAMI 2019, arXiv:1904.01169), on log-mel maps, at a small width.

Of the s groups of channels between the two 1 x 1 convolutions of a bottleneck, with 3 x 3 convolutions K_i,

    y_1 = x_1,   y_2 = K_2(x_2),   y_i = K_i(x_i + y_{i-1})                                  (1)

Three stages of one block, where the paper has four of three to six; the stem halves both axes, no pooling follows, and
statistics over time take the place of the mean.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.audio.pooling import map_statistics


def conv(d_in: int, d_out: int, *, size: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution and batch norm."""
    return nn.Sequential(
        nn.Conv2d(d_in, d_out, size, stride=stride, padding=size // 2, bias=False), nn.BatchNorm2d(d_out)
    )


class Sum(nn.Module):
    """x_i + y_{i-1}: how Res2Net lets a scale see the one before."""

    def __init__(self, _width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Scales(nn.Module):
    """Equation 1.  `fuse(width)` makes what joins x_i and y_{i-1}; `all_convolved`: y_1 = K_1(x_1)."""

    def __init__(
        self, width: int, *, scales: int, fuse: Callable[[int], nn.Module] = Sum, all_convolved: bool = False
    ) -> None:
        super().__init__()
        if width % scales or scales < 2:
            raise ValueError(f"channels divide into two groups or more, got {width} channels and {scales} scales")
        self.part, self.first = width // scales, 0 if all_convolved else 1
        self.convs = nn.ModuleList(conv(self.part, self.part) for _ in range(scales - self.first))
        joined = range(max(1, self.first + 1), scales)  # the groups that see the one before
        self.fuse = nn.ModuleDict({str(i): fuse(self.part) for i in joined})

    def forward(self, x: Float[Tensor, "n c f t"]) -> Float[Tensor, "n c f t"]:
        done: list[Tensor] = []
        for i, group in enumerate(x.split(self.part, dim=1)):
            y = self.fuse[str(i)](group, done[-1]) if str(i) in self.fuse else group
            done.append(self.convs[i - self.first](y).relu() if i >= self.first else y)
        return torch.cat(done, dim=1)


class Res2Block(nn.Module):
    """1 x 1 (strided), scales, 1 x 1, and the input added: itself, or through a 1 x 1 where shapes differ."""

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        stride: int,
        scales: int,
        fuse: Callable[[int], nn.Module] = Sum,
        all_convolved: bool = False,
    ) -> None:
        super().__init__()
        self.reduce = conv(d_in, d_out, size=1, stride=stride)
        self.scales = Scales(d_out, scales=scales, fuse=fuse, all_convolved=all_convolved)
        self.expand = conv(d_out, d_out, size=1)
        self.downsample = conv(d_in, d_out, size=1, stride=stride) if stride > 1 or d_in != d_out else nn.Identity()

    def forward(self, x: Float[Tensor, "n c f t"]) -> Float[Tensor, "n d f2 t2"]:
        y: Tensor = self.expand(self.scales(self.reduce(x).relu()))
        return (y + self.downsample(x)).relu()


class Res2Net(nn.Module):
    """
    >>> Res2Net(mels=40, classes=10)(torch.zeros(2, 40, 80)).shape
    torch.Size([2, 10])
    """

    sim_blocks = ("stages.0", "stages.1", "stages.2")

    def __init__(self, *, mels: int, classes: int, widths: Sequence[int] = (16, 32, 64), scales: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(1, widths[0], stride=2), nn.ReLU())
        self.stages = nn.Sequential(
            *(
                Res2Block(d_in, d_out, stride=2 if i else 1, scales=scales)
                for i, (d_in, d_out) in enumerate(zip((widths[0], *widths), widths, strict=False))
            )
        )
        self.classify = nn.Linear(2 * widths[-1] * halved(mels, times=len(widths)), classes)

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n classes"]:
        y: Tensor = self.classify(map_statistics(self.stages(self.stem(x[:, None]))))
        return y


def halved(size: int, *, times: int) -> int:
    """What strided convolutions leave of an axis: they round up."""
    for _ in range(times):
        size = (size + 1) // 2
    return size
