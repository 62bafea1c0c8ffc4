"""TDNN: time-delay layers and statistics pooling, the x-vector network (Snyder et al., ICASSP 2018), at a small width.

A layer sees frames t + o for the offsets o of its context, side by side, through one affine map: a dilated convolution.
Ours pads with zeros, so that all layers have as many frames as the clip; the paper's shrink.  The paper's widths are
512 and 1500, and it has two dense layers after the pooling where this has one.
"""

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
    """Five time-delay layers of `width`, the last three times as wide, statistics, a dense layer, class scores.

    >>> import torch
    >>> TDNN(mels=40, classes=10)(torch.zeros(2, 40, 80)).shape
    torch.Size([2, 10])
    """

    sim_blocks = ("layers.1", "layers.2", "layers.3")  # those that keep their width

    def __init__(self, *, mels: int, classes: int, width: int = 64) -> None:
        super().__init__()
        widths = (mels, *(width,) * 4, 3 * width)
        self.layers = nn.Sequential(
            *(
                TDNNLayer(d_in, d_out, size=size, dilation=dilation)
                for d_in, d_out, (size, dilation) in zip(widths, widths[1:], CONTEXTS, strict=False)
            )
        )
        self.dense = nn.Sequential(nn.Linear(6 * width, width), nn.ReLU(), nn.BatchNorm1d(width))
        self.classify = nn.Linear(width, classes)

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n classes"]:
        y: Tensor = self.classify(self.dense(statistics(self.layers(x))))
        return y
