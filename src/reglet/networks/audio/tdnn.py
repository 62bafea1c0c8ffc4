"""TDNN: time-delay layers and statistics pooling, the x-vector network (Snyder et al., ICASSP 2018).

A layer sees frames t + o for the offsets o of its context, side by side, through one affine map: a dilated convolution.
Ours pads with zeros, so that all layers have as many frames as the clip; the paper's shrink.  Without batch norms and
the second dense layer the paper counts 4.2 million weights at 24 bands, and so do we.
"""

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.audio.pooling import statistics

CONTEXTS = ((5, 1), (3, 2), (3, 3), (1, 1), (1, 1))  # frames seen and their distance: {-2..2}, {-2,0,2}, {-3,0,3}, {0}


class TDNNLayer(nn.Module):
    """ReLU and batch norm of an affine map of the frames t - dilation (size - 1) / 2, ..., t + dilation (size - 1) / 2.

    >>> import torch
    >>> TDNNLayer(40, 64, size=3, dilation=2)(torch.zeros(2, 40, 50)).shape
    torch.Size([2, 64, 50])
    """

    def __init__(self, d_in: int, d_out: int, *, size: int, dilation: int = 1) -> None:
        super().__init__()
        if size % 2 == 0:
            raise ValueError(f"a context has as many frames before as after, so size is odd; got {size}")
        self.affine = nn.Conv1d(d_in, d_out, size, dilation=dilation, padding=dilation * (size // 2))
        self.norm = nn.BatchNorm1d(d_out)

    def forward(self, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n d t"]:
        y: Tensor = self.norm(self.affine(x).relu())
        return y


class TDNN(nn.Module):
    """Four time-delay layers of `width`, one of `last`, statistics, dense layers: features (n, dim).

    >>> import torch
    >>> TDNN(mels=40, width=64, last=192, dense=(64,))(torch.zeros(2, 40, 80)).shape
    torch.Size([2, 64])
    """

    sim_blocks = ("layers.1", "layers.2", "layers.3")  # those that keep their width

    def __init__(self, *, mels: int, width: int = 512, last: int = 1500, dense: Sequence[int] = (512, 512)) -> None:
        super().__init__()
        widths = (mels, *(width,) * 4, last)
        self.layers = nn.Sequential(
            *(
                TDNNLayer(d_in, d_out, size=size, dilation=dilation)
                for d_in, d_out, (size, dilation) in zip(widths, widths[1:], CONTEXTS, strict=False)
            )
        )
        ends = (2 * last, *dense)
        self.dense = nn.Sequential(
            *(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.BatchNorm1d(b)) for a, b in pairwise(ends))
        )
        self.dim = ends[-1]

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n d"]:
        y: Tensor = self.dense(statistics(self.layers(x)))
        return y


def tdnn_small(*, mels: int, width: int = 64) -> TDNN:
    """An eighth of the width, and one dense layer: it trains in seconds on a CPU.

    >>> import torch
    >>> tdnn_small(mels=40)(torch.randn(2, 40, 50)).shape
    torch.Size([2, 64])
    """
    return TDNN(mels=mels, width=width, last=3 * width, dense=(width,))
