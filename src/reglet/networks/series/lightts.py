"""LightTS: MLPs on two samplings of a sequence.  Zhang et al., Less Is More, 2022, arXiv:2207.01186."""

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def continuous(x: Float[Tensor, "m t"], *, chunk: int) -> Float[Tensor, "m parts chunk"]:
    """Part j has neighbours: x_{jC}, ..., x_{jC + C - 1}.  For what is local.

    >>> import torch
    >>> continuous(torch.arange(6.0)[None], chunk=3)
    tensor([[[0., 1., 2.],
             [3., 4., 5.]]])
    """
    return x.unflatten(1, (_parts(x, chunk), chunk))


def interval(x: Float[Tensor, "m t"], *, chunk: int) -> Float[Tensor, "m parts chunk"]:
    """Part j has every (T/C)-th point: x_j, x_{j + T/C}, x_{j + 2T/C}, ...  For what is global.

    >>> import torch
    >>> interval(torch.arange(6.0)[None], chunk=3)
    tensor([[[0., 2., 4.],
             [1., 3., 5.]]])
    """
    return x.unflatten(1, (chunk, _parts(x, chunk))).transpose(1, 2)


def _parts(x: Tensor, chunk: int) -> int:
    if x.shape[1] % chunk:
        raise ValueError(f"a sequence of {x.shape[1]} points has no whole parts of {chunk}")
    return x.shape[1] // chunk


class Exchange(nn.Module):
    """The paper's information exchange block, on W columns of H numbers.

    All columns go through the same MLP, R^H -> R^F'.  Each of the F' rows is mixed among columns, R^W -> R^W.  Then
    each column is projected, R^F' -> R^F.  As in the authors' code, the mixing is added to its input, and starts as the
    identity.
    """

    def __init__(self, height: int, columns: int, *, hidden: int, out: int) -> None:
        super().__init__()
        narrow = max(1, hidden // 4)
        self.each = nn.Sequential(nn.Linear(height, hidden), nn.LeakyReLU(), nn.Linear(hidden, narrow))
        self.among = nn.Linear(columns, columns)
        nn.init.eye_(self.among.weight)
        self.out = nn.Linear(narrow, out)

    def forward(self, x: Float[Tensor, "m columns h"]) -> Float[Tensor, "m columns f"]:
        z = self.each(x)
        y: Tensor = self.out(z + self.among(z.transpose(1, 2)).transpose(1, 2))
        return y


class LightTS(nn.Module):
    """Each variate's window is cut by continuous and by interval sampling, each cut goes through an exchange block over
    its parts and is summed up in `width` numbers; a third block exchanges these among the variates.

    A length that is not a multiple of `chunk` is filled up by zeros, as in the authors' code.  Its linear highway from
    window to window is left out: a reconstructor would only have to learn the identity there.  The sizes are the
    defaults of Time-Series-Library, whose d_model of 512 is four times `width`; the paper's own, which differ by data
    set, were not at hand.

    >>> LightTS(channels=3, length=20, width=16, chunk=10)(torch.randn(4, 20, 3)).shape
    torch.Size([4, 20, 3])
    """

    sim_blocks = ("continuous", "interval", "variates")

    def __init__(self, *, channels: int, length: int, width: int = 128, chunk: int = 24) -> None:
        super().__init__()
        chunk = min(chunk, length)
        self.chunk, self.fill = chunk, -length % chunk
        parts = (length + self.fill) // chunk
        self.continuous = Exchange(chunk, parts, hidden=width, out=width)
        self.interval = Exchange(chunk, parts, hidden=width, out=width)
        self.sum_continuous, self.sum_interval = nn.Linear(parts, 1), nn.Linear(parts, 1)
        self.variates = Exchange(2 * width, channels, hidden=2 * width, out=length)

    def forward(self, x: Float[Tensor, "n t c"]) -> Float[Tensor, "n t c"]:
        n, _, c = x.shape
        z = F.pad(x.transpose(1, 2).flatten(0, 1), (0, self.fill))
        near = self.sum_continuous(self.continuous(continuous(z, chunk=self.chunk)).transpose(1, 2))
        far = self.sum_interval(self.interval(interval(z, chunk=self.chunk)).transpose(1, 2))
        both = torch.cat([near, far], 1).view(n, c, -1)
        return cast(Tensor, self.variates(both)).transpose(1, 2)


def lightts_small(*, channels: int, length: int, width: int = 32) -> LightTS:
    """Parts of ten points and a quarter of the width: it trains in seconds on a CPU.

    >>> lightts_small(channels=3, length=20)(torch.randn(4, 20, 3)).shape
    torch.Size([4, 20, 3])
    """
    return LightTS(channels=channels, length=length, width=width, chunk=10)
