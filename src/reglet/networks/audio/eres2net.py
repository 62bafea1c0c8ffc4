"""ERes2Net: Res2Net that joins scales and stages by attention (Chen et al., Interspeech 2023, arXiv:2305.12838).

Attentional fusion of two maps of one shape, with 1 x 1 convolutions W_1 to a quarter of the channels and W_2 back:

    U = tanh(BN(W_2 SiLU(BN(W_1 [x, y])))),    fuse(x, y) = (1 + U) x + (1 - U) y

Local: y_1 = K_1(x_1), y_i = K_i(fuse(x_i, y_{i-1})) within a block.  Global: the output of a stage, through a strided
3 x 3 convolution, is fused into that of the next, from the bottom up.  The first two stages join their scales by a sum,
as in Res2Net.  Sizes are those of the authors' code (3D-Speaker): 6.61 million weights at 80 bands, 4.64 of them before
the embedding.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.audio.pooling import map_statistics
from reglet.networks.audio.res2net import Sum, conv, halved, stage


class Fusion(nn.Module):
    """
    >>> Fusion(8)(torch.zeros(2, 8, 5, 6), torch.zeros(2, 8, 5, 6)).shape
    torch.Size([2, 8, 5, 6])
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = max(2, width // 4)
        self.squeeze, self.excite = conv(2 * width, hidden, size=1), conv(hidden, width, size=1)

    def forward(self, x: Float[Tensor, "n c f t"], y: Float[Tensor, "n c f t"]) -> Float[Tensor, "n c f t"]:
        u = self.excite(nn.functional.silu(self.squeeze(torch.cat([x, y], dim=1)))).tanh()
        return (1 + u) * x + (1 - u) * y


class ERes2Net(nn.Module):
    """Stages of `depths` blocks; the map is halved before each but the first.

    widths: channels that a stage gives.  hidden: channels of its scales together.  stem: channels before the stages,
    by a convolution of stem_stride.  fused: the last so many stages fuse their scales; the others add them.
    embedding: features of the linear layer after the pooling; 0: the pooled statistics themselves.

    >>> net = ERes2Net(mels=40, stem=8, widths=(8, 16), hidden=(8, 8), depths=(1, 1), fused=1, embedding=32)
    >>> net(torch.randn(2, 40, 50)).shape
    torch.Size([2, 32])
    """

    def __init__(
        self,
        *,
        mels: int,
        stem: int = 32,
        stem_stride: int = 1,
        widths: Sequence[int] = (64, 128, 256, 512),
        hidden: Sequence[int] = (32, 64, 128, 256),
        depths: Sequence[int] = (3, 4, 6, 3),
        scales: int = 2,
        fused: int = 2,
        embedding: int = 192,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(1, stem, stride=stem_stride), nn.ReLU())
        first = len(widths) - fused
        self.stages = nn.ModuleList(
            stage(
                d_in,
                d_out,
                depth=depth,
                stride=2 if i else 1,
                hidden=inner,
                scales=scales,
                fuse=Fusion if i >= first else Sum,
                all_convolved=True,
            )
            for i, (d_in, d_out, inner, depth) in enumerate(zip((stem, *widths), widths, hidden, depths, strict=False))
        )
        self.down = nn.ModuleList(conv(a, b, stride=2) for a, b in pairwise(widths))
        self.fuse = nn.ModuleList(Fusion(width) for width in widths[1:])
        pooled = 2 * widths[-1] * halved(mels, times=len(widths) - 1 + (stem_stride > 1))
        self.embed = nn.Linear(pooled, embedding) if embedding else nn.Identity()
        self.sim_blocks = tuple(f"stages.{i}" for i in range(len(widths)))
        self.dim = embedding or pooled

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n d"]:
        below = y = self.stages[0](self.stem(x[:, None]))
        for part, down, fuse in zip(self.stages[1:], self.down, self.fuse, strict=True):
            y = part(y)
            below = fuse(y, down(below))
        z: Tensor = self.embed(map_statistics(below))
        return z


def eres2net_small(*, mels: int, widths: Sequence[int] = (16, 32, 64), scales: int = 4) -> ERes2Net:
    """Three stages of one block that all fuse, on half the frames, no embedding: it trains in seconds on a CPU.

    >>> eres2net_small(mels=40)(torch.zeros(2, 40, 80)).shape
    torch.Size([2, 640])
    """
    return ERes2Net(
        mels=mels,
        stem=widths[0],
        stem_stride=2,
        widths=widths,
        hidden=widths,
        depths=[1] * len(widths),
        scales=scales,
        fused=len(widths),
        embedding=0,
    )
