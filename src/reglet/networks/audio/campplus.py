"""CAM++: dense time-delay layers under context-aware masks (Wang et al., Interspeech 2023, arXiv:2303.00332).

A small residual network on the (mels, frames) map halves the frequencies three times and keeps the frames; its channels
and frequencies together are the features of a densely connected TDNN.  In each layer of that, with F a dilated
convolution of the bottleneck h,

    M = sigmoid(W_2 ReLU(W_1 (e_g + e_s) + b_1) + b_2),     layer(x) = [x, F(h) M]

where e_g is the mean of h over all frames and e_s its mean over the segment that a frame lies in.  The authors' code
(3D-Speaker) counts 7.18 million weights at 80 bands.
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
    """Layers that each see the outputs of all layers before; then a 1 x 1 convolution halves the features."""

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


class FrequencyResidual(nn.Module):
    """Two 3 x 3 convolutions and the input added.  stride: of the frequencies; frames are kept."""

    def __init__(self, width: int, *, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*strided(width, size=3, stride=stride), nn.ReLU(), conv(width, width))
        self.shortcut = nn.Sequential(*strided(width, size=1, stride=stride)) if stride > 1 else nn.Identity()

    def forward(self, x: Float[Tensor, "n c f t"]) -> Float[Tensor, "n c f2 t"]:
        y: Tensor = self.layers(x) + self.shortcut(x)
        return y.relu()


class FrontEnd(nn.Module):
    """A map whose frequencies are halved once for each of `depths`, then channels x frequencies as features.

    depths: residual blocks at each halving, the first of them strided; 0: only a strided convolution.
    """

    def __init__(self, width: int, *, depths: Sequence[int]) -> None:
        super().__init__()
        self.stem = conv(1, width)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(*(FrequencyResidual(width, stride=1 if i else 2) for i in range(depth)))
                if depth
                else nn.Sequential(*strided(width, size=3, stride=2), nn.ReLU())
                for depth in depths
            )
        )

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n d t"]:
        y: Tensor = self.stages(self.stem(x[:, None]).relu())
        return y.flatten(1, 2)


class CAMPPlus(nn.Module):
    """A front end of `front` channels, a layer that halves the frames, dense blocks of `depths` layers, statistics.

    embedding: features of the linear layer after the pooling; 0: the pooled statistics themselves.

    >>> net = CAMPPlus(mels=40, front=8, width=16, growth=8, depths=(1, 1), embedding=32)
    >>> net(torch.randn(2, 40, 100)).shape
    torch.Size([2, 32])
    """

    def __init__(
        self,
        *,
        mels: int,
        front: int = 32,
        front_depths: Sequence[int] = (2, 2, 0),
        width: int = 128,
        growth: int = 32,
        depths: Sequence[int] = (12, 24, 16),
        segment: int = 100,
        embedding: int = 512,
    ) -> None:
        super().__init__()
        self.front = FrontEnd(front, depths=front_depths)
        self.entry = nn.Sequential(
            nn.Conv1d(front * halved(mels, times=len(front_depths)), width, 5, stride=2, padding=2, bias=False),
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
        self.embed = (
            nn.Sequential(nn.Linear(2 * d, embedding, bias=False), nn.BatchNorm1d(embedding, affine=False))
            if embedding
            else nn.Identity()
        )
        self.sim_blocks = tuple(f"blocks.{i}" for i in range(len(depths)))
        self.dim = embedding or 2 * d

    def forward(self, x: Float[Tensor, "n mels t"]) -> Float[Tensor, "n d"]:
        y: Tensor = self.embed(statistics(self.norm(self.blocks(self.entry(self.front(x))))))
        return y


def campplus_small(
    *,
    mels: int,
    front: int = 8,
    width: int = 64,
    growth: int = 16,
    depths: Sequence[int] = (3, 3),
    segment: int = 20,
) -> CAMPPlus:
    """Two dense blocks of three layers, segments of 20 frames, no embedding: it trains in seconds on a CPU.

    >>> campplus_small(mels=40)(torch.zeros(2, 40, 80)).shape
    torch.Size([2, 104])
    """
    return CAMPPlus(
        mels=mels,
        front=front,
        front_depths=(1, 1, 1),
        width=width,
        growth=growth,
        depths=depths,
        segment=segment,
        embedding=0,
    )


def strided(width: int, *, size: int, stride: int) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """A convolution that strides over frequencies, and its norm."""
    kernel = nn.Conv2d(width, width, size, stride=(stride, 1), padding=size // 2, bias=False)
    return kernel, nn.BatchNorm2d(width)
