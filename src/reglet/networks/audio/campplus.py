"""CAM++: dense time-delay layers under context-aware masks (Wang et al., Interspeech 2023, arXiv:2303.00332).

A small residual network on the (mels, frames) map halves the frequencies three times and keeps the frames; its channels
and frequencies together are the features of a densely connected TDNN.  In each layer of that, with F a dilated
convolution of the bottleneck h,

    M = sigmoid(W_2 ReLU(W_1 (e_g + e_s) + b_1) + b_2),     layer(x) = [x, F(h) M]

where e_g is the mean of h over all frames and e_s its mean over the segment that a frame lies in.  Two dense blocks of
three layers, where the paper has three of 12, 24 and 16; segments of 20 frames after the halving of time, the paper's
of 100.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.audio.pooling import statistics
from reglet.networks.audio.res2net import conv, halved


def segment_mean(x: Float[Tensor, "n d t"], *, segment: int) -> Float[Tensor, "n d t"]:
    """Each frame replaced by the mean of its segment; the last segment may be shorter."""
    means = F.avg_pool1d(x, segment, ceil_mode=True)
    return means.repeat_interleave(segment, dim=2)[:, :, : x.shape[2]]


class Mask(nn.Module):
    """M of a bottleneck h, one weight for each feature that F gives, frame by frame."""

    def __init__(self, d_in: int, d_out: int, *, segment: int) -> None:
        super().__init__()
        self.segment = segment
        self.squeeze, self.excite = nn.Conv1d(d_in, d_in // 2, 1), nn.Conv1d(d_in // 2, d_out, 1)

    def forward(self, h: Float[Tensor, "n c t"]) -> Float[Tensor, "n d t"]:
        context = h.mean(2, keepdim=True) + segment_mean(h, segment=self.segment)
        m: Tensor = self.excite(self.squeeze(context).relu())
        return m.sigmoid()


class MaskedLayer(nn.Module):
    """What a layer adds to its input's features: F(h) M, with h = BN-ReLU-1x1-BN-ReLU of the input."""

    def __init__(self, d_in: int, growth: int, *, dilation: int, segment: int) -> None:
        super().__init__()
        hidden = 4 * growth
        self.bottleneck = nn.Sequential(
            nn.BatchNorm1d(d_in), nn.ReLU(), nn.Conv1d(d_in, hidden, 1, bias=False), nn.BatchNorm1d(hidden), nn.ReLU()
        )
        self.features = nn.Conv1d(hidden, growth, 3, dilation=dilation, padding=dilation, bias=False)
        self.mask = Mask(hidden, growth, segment=segment)

    def forward(self, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n g t"]:
        h = self.bottleneck(x)
        y: Tensor = self.features(h) * self.mask(h)
        return y


class DenseBlock(nn.Module):
    """Layers that each see the outputs of all before, then half as many features through a 1 x 1."""

    def __init__(self, d_in: int, *, depth: int, growth: int, dilation: int, segment: int) -> None:
        super().__init__()
        widths = [d_in + i * growth for i in range(depth + 1)]
        self.layers = nn.ModuleList(MaskedLayer(d, growth, dilation=dilation, segment=segment) for d in widths[:-1])
        self.dim = widths[-1] // 2
        self.transition = nn.Sequential(
            nn.BatchNorm1d(widths[-1]), nn.ReLU(), nn.Conv1d(widths[-1], self.dim, 1, bias=False)
        )

    def forward(self, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n d t"]:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], dim=1)
        y: Tensor = self.transition(x)
        return y


class FrontEnd(nn.Module):
    """Residual blocks on the map that halve its frequencies three times, then channels x frequencies as features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = conv(1, width)
        self.halve = nn.ModuleList(_halve_frequency(width) for _ in range(3))
        self.shortcut = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 1, stride=(2, 1), bias=False), nn.BatchNorm2d(width))
            for _ in range(3)
        )

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n d t"]:
        y = self.stem(x[:, None]).relu()
        for halve, shortcut in zip(self.halve, self.shortcut, strict=True):
            y = (halve(y) + shortcut(y)).relu()
        return y.flatten(1, 2)


class CAMPPlus(nn.Module):
    """
    >>> CAMPPlus(mels=40, classes=10)(torch.zeros(2, 40, 80)).shape
    torch.Size([2, 10])
    """

    sim_blocks = ("blocks.0", "blocks.1")

    def __init__(
        self,
        *,
        mels: int,
        classes: int,
        front: int = 8,
        width: int = 64,
        growth: int = 16,
        depths: Sequence[int] = (3, 3),
        segment: int = 20,
    ) -> None:
        super().__init__()
        self.front = FrontEnd(front)
        self.entry = nn.Sequential(
            nn.Conv1d(front * halved(mels, times=3), width, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        blocks: list[DenseBlock] = []
        d = width
        for i, depth in enumerate(depths):
            blocks.append(DenseBlock(d, depth=depth, growth=growth, dilation=1 if i == 0 else 2, segment=segment))
            d = blocks[-1].dim
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.Sequential(nn.BatchNorm1d(d), nn.ReLU())
        self.classify = nn.Linear(2 * d, classes)

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n classes"]:
        y: Tensor = self.classify(statistics(self.norm(self.blocks(self.entry(self.front(x))))))
        return y


def _halve_frequency(width: int) -> nn.Sequential:
    first = nn.Conv2d(width, width, 3, stride=(2, 1), padding=1, bias=False)
    return nn.Sequential(first, nn.BatchNorm2d(width), nn.ReLU(), conv(width, width))
