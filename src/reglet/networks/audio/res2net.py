"""Res2Net: scales within a block (Gao et al., TPAMI 2019, arXiv:1904.01169), on log-mel maps.

Of the s groups of channels between the two 1 x 1 convolutions of a bottleneck, with 3 x 3 convolutions K_i,

    y_1 = x_1,   y_2 = K_2(x_2),   y_i = K_i(x_i + y_{i-1})                                  (1)

The sizes are those of Res2Net-50 with 26 channels in each of 4 scales.  Differences: one input channel; a block is
strided in its first 1 x 1 convolution; statistics over time take the place of the mean over the map.
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
    """1 x 1 (strided), scales, 1 x 1, and the input added: itself, or through a 1 x 1 where shapes differ.

    hidden: channels of all scales together.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: int,
        stride: int,
        scales: int,
        fuse: Callable[[int], nn.Module] = Sum,
        all_convolved: bool = False,
    ) -> None:
        super().__init__()
        self.reduce = conv(d_in, hidden, size=1, stride=stride)
        self.scales = Scales(hidden, scales=scales, fuse=fuse, all_convolved=all_convolved)
        self.expand = conv(hidden, d_out, size=1)
        self.downsample = conv(d_in, d_out, size=1, stride=stride) if stride > 1 or d_in != d_out else nn.Identity()

    def forward(self, x: Float[Tensor, "n c f t"]) -> Float[Tensor, "n d f2 t2"]:
        y: Tensor = self.expand(self.scales(self.reduce(x).relu()))
        return (y + self.downsample(x)).relu()


class Res2Net(nn.Module):
    """Stages of `depths` blocks; the map is halved before each but the first.

    widths: channels that a stage gives.  hidden: channels of its scales together.  stem: channels before the stages.
    pooled: a 7 x 7 stem and a 3 x 3 maximum after it, each of stride 2, as in the paper; otherwise a 3 x 3 of stride 2.

    >>> net = Res2Net(mels=40, stem=8, widths=(16, 32), hidden=(8, 16), depths=(1, 1))
    >>> net(torch.randn(2, 40, 64)).shape
    torch.Size([2, 320])
    """

    def __init__(
        self,
        *,
        mels: int,
        stem: int = 64,
        widths: Sequence[int] = (256, 512, 1024, 2048),
        hidden: Sequence[int] = (104, 208, 416, 832),
        depths: Sequence[int] = (3, 4, 6, 3),
        scales: int = 4,
        pooled: bool = True,
    ) -> None:
        super().__init__()
        entry = [conv(1, stem, size=7 if pooled else 3, stride=2), nn.ReLU()]
        self.stem = nn.Sequential(*entry, *([nn.MaxPool2d(3, stride=2, padding=1)] if pooled else []))
        ins = (stem, *widths)
        self.stages = nn.Sequential(
            *(
                stage(d_in, d_out, depth=depth, stride=2 if i else 1, hidden=inner, scales=scales)
                for i, (d_in, d_out, inner, depth) in enumerate(zip(ins, widths, hidden, depths, strict=False))
            )
        )
        self.sim_blocks = tuple(f"stages.{i}" for i in range(len(widths)))
        self.dim = 2 * widths[-1] * halved(mels, times=len(widths) + pooled)

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n d"]:
        return map_statistics(self.stages(self.stem(x[:, None])))


def res2net_small(*, mels: int, widths: Sequence[int] = (16, 32, 64), scales: int = 4) -> Res2Net:
    """Three stages of one block, no wider outside than inside: it trains in seconds on a CPU.

    >>> res2net_small(mels=40)(torch.zeros(2, 40, 80)).shape
    torch.Size([2, 640])
    """
    depths = [1] * len(widths)
    return Res2Net(mels=mels, stem=widths[0], widths=widths, hidden=widths, depths=depths, scales=scales, pooled=False)


def stage(
    d_in: int,
    d_out: int,
    *,
    depth: int,
    stride: int,
    hidden: int,
    scales: int,
    fuse: Callable[[int], nn.Module] = Sum,
    all_convolved: bool = False,
) -> nn.Sequential:
    """Blocks of one width, the first of them strided."""
    return nn.Sequential(
        *(
            Res2Block(
                d_out if i else d_in,
                d_out,
                hidden=hidden,
                stride=1 if i else stride,
                scales=scales,
                fuse=fuse,
                all_convolved=all_convolved,
            )
            for i in range(depth)
        )
    )


def halved(size: int, *, times: int) -> int:
    """What strided convolutions leave of an axis: they round up."""
    for _ in range(times):
        size = (size + 1) // 2
    return size
