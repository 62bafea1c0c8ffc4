"""The periods of a batch of series, and a series as a table with one period per row."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


class Periods(NamedTuple):
    """The strongest periods of a batch, and how strong they are in each window."""

    lengths: list[int]
    amplitudes: Float[Tensor, "n k"]


def periods(x: Float[Tensor, "n t d"], *, top: int) -> Periods:
    """A = mean over features of |FFT(x)|;  f_1, ..., f_k = the largest of A without the constant;  p_i = T / f_i.

    Wu et al., TimesNet, equation 1.  As in the authors' code the frequencies are those of the batch, A being averaged
    over it, and T / f is rounded down (the paper rounds up).

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
