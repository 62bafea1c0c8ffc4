"""TimesNet: a series as tables, one for each of its periods.  Wu et al., ICLR 2023, arXiv:2210.02186."""

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.series.window_norm import normalized, restored


class Periods(NamedTuple):
    """The strongest periods of a batch, and how strong they are in each window."""

    lengths: list[int]
    amplitudes: Float[Tensor, "n k"]


def periods(x: Float[Tensor, "n t d"], *, top: int) -> Periods:
    """A = mean over features of |FFT(x)|;  f_1, ..., f_k = the largest of A without the constant;  p_i = T / f_i.

    Wu et al., TimesNet, equation 1.  As in the authors' code, A is averaged over the batch, and T / f is rounded down
    (the paper rounds up).

    >>> wave = torch.sin(2 * torch.pi * torch.arange(60.0) / 12).view(1, 60, 1)
    >>> periods(wave, top=1).lengths
    [12]
    """
    length = x.shape[1]
    if not 1 <= top <= length // 2:
        raise ValueError(f"a window of {length} points has {length // 2} frequencies, so no {top} strongest ones")
    amplitude = torch.fft.rfft(x, dim=1).abs().mean(-1)
    frequencies = amplitude.detach().mean(0)[1:].topk(top).indices + 1
    return Periods([length // f for f in frequencies.tolist()], amplitude[:, frequencies])


def fold(x: Float[Tensor, "n t d"], *, period: int) -> Float[Tensor, "n d rows period"]:
    """One period per row, so that columns are points of the same phase; the last row is filled up by zeros."""
    n, t, d = x.shape
    return F.pad(x, (0, 0, 0, -t % period)).view(n, -1, period, d).permute(0, 3, 1, 2)


def unfold(table: Float[Tensor, "n d rows period"], *, length: int) -> Float[Tensor, "n t d"]:
    """The inverse of `fold`."""
    return table.flatten(2).transpose(1, 2)[:, :length]


class Inception(nn.Module):
    """mean over i < sizes of Conv_{2i + 1}(x), as in TimesNet's code.

    This is one convolution, whose kernel is the mean of the kernels, each padded with zeros to the size of the largest.
    That is how it is computed.
    """

    def __init__(self, d_in: int, d_out: int, *, sizes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(d_in, d_out, 2 * i + 1, padding=i) for i in range(sizes))
        for conv in self.convs:
            conv = cast(nn.Conv2d, conv)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(cast(Tensor, conv.bias))

    def forward(self, x: Float[Tensor, "n d h w"]) -> Float[Tensor, "n e h w"]:
        convs = [cast(nn.Conv2d, conv) for conv in self.convs]
        reach = len(convs) - 1
        weights = [F.pad(conv.weight, [reach - i] * 4) for i, conv in enumerate(convs)]
        bias = torch.stack([cast(Tensor, conv.bias) for conv in convs]).mean(0)
        return F.conv2d(x, torch.stack(weights).mean(0), bias, padding=reach)


class TimesBlock(nn.Module):
    """y = x + sum_i softmax(A)_i unfold(Inception(GELU(Inception(fold(x, p_i)))))  over the k strongest periods p_i.

    The convolutions see neighbours within a period and the same phase of the periods before and after.  Equations 2 to
    5 of the paper.  Periods are those of the batch (see `periods`), so a window's output depends on the others.
    """

    def __init__(self, width: int, *, top: int, sizes: int) -> None:
        super().__init__()
        self.top = top
        self.convs = nn.Sequential(
            Inception(width, width, sizes=sizes), nn.GELU(), Inception(width, width, sizes=sizes)
        )

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        lengths, amplitudes = periods(x, top=self.top)
        tables = [unfold(self.convs(fold(x, period=p)), length=x.shape[1]) for p in lengths]
        return x + torch.einsum("nk,kntd->ntd", amplitudes.softmax(1), torch.stack(tables))


class TimesNet(nn.Module):
    """Embedding by a circular convolution over three points and sinusoids of the place; blocks; one linear layer.

    The sizes are the largest that the paper has for anomaly detection: three blocks, three periods, 128 features, and
    convolutions of six sizes.

    >>> TimesNet(channels=3, length=20, width=8, depth=1, top=2, sizes=2)(torch.randn(4, 20, 3)).shape
    torch.Size([4, 20, 3])
    """

    sim_blocks = ("blocks.*",)

    def __init__(
        self,
        *,
        channels: int,
        length: int,
        width: int = 128,
        depth: int = 3,
        top: int = 3,
        sizes: int = 6,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.embed = nn.Conv1d(channels, width, 3, padding=1, padding_mode="circular", bias=False)
        self.register_buffer("places", sinusoids(length, width), persistent=False)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(TimesBlock(width, top=min(top, length // 2), sizes=sizes) for _ in range(depth))
        self.norm = nn.LayerNorm(width)  # one for all blocks, as in the authors' code
        self.head = nn.Linear(width, channels)

    def forward(self, x: Float[Tensor, "n t c"]) -> Float[Tensor, "n t c"]:
        z, level = normalized(x)
        tokens = self.drop(self.embed(z.transpose(1, 2)).transpose(1, 2) + self.places)
        for block in self.blocks:
            tokens = self.norm(block(tokens))
        return restored(cast(Tensor, self.head(tokens)), level)


def timesnet_small(*, channels: int, length: int, width: int = 16) -> TimesNet:
    """Two narrow blocks, two periods, three sizes, without dropout: it trains in seconds on a CPU.

    >>> timesnet_small(channels=3, length=20)(torch.randn(4, 20, 3)).shape
    torch.Size([4, 20, 3])
    """
    return TimesNet(channels=channels, length=length, width=width, depth=2, top=2, sizes=3, dropout=0.0)


def sinusoids(length: int, width: int) -> Float[Tensor, "t d"]:
    """sin and cos of t / 10000^(2i/d), in turn."""
    rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :width]
