"""ERes2Net: Res2Net that joins scales and stages by attention (Chen et al., Interspeech 2023, arXiv:2305.12838).

Attentional fusion of two maps of one shape, with 1 x 1 convolutions W_1 to a quarter of the channels and W_2 back:

    U = tanh(BN(W_2 SiLU(BN(W_1 [x, y])))),    fuse(x, y) = (1 + U) x + (1 - U) y

Local: y_1 = K_1(x_1), y_i = K_i(fuse(x_i, y_{i-1})) within a block.  Global: the output of a stage, through a strided
3 x 3 convolution, is fused into that of the next, from the bottom up.  Three stages of one block, where the paper has
four of three to six and local fusion in the last two only.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.audio.pooling import map_statistics
from reglet.networks.audio.res2net import Res2Block, conv, halved


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
    """
    >>> ERes2Net(mels=40, classes=10)(torch.zeros(2, 40, 80)).shape
    torch.Size([2, 10])
    """

    sim_blocks = ("stages.0", "stages.1", "stages.2")

    def __init__(self, *, mels: int, classes: int, widths: Sequence[int] = (16, 32, 64), scales: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(1, widths[0], stride=2), nn.ReLU())
        self.stages = nn.ModuleList(
            Res2Block(d_in, d_out, stride=2 if i else 1, scales=scales, fuse=Fusion, all_convolved=True)
            for i, (d_in, d_out) in enumerate(zip((widths[0], *widths), widths, strict=False))
        )
        self.down = nn.ModuleList(conv(a, b, stride=2) for a, b in pairwise(widths))
        self.fuse = nn.ModuleList(Fusion(width) for width in widths[1:])
        self.classify = nn.Linear(2 * widths[-1] * halved(mels, times=len(widths)), classes)

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n classes"]:
        below = y = self.stages[0](self.stem(x[:, None]))
        for stage, down, fuse in zip(self.stages[1:], self.down, self.fuse, strict=True):
            y = stage(y)
            below = fuse(y, down(below))
        scores: Tensor = self.classify(map_statistics(below))
        return scores
