"""What was drawn for one view of n series, as data: kept, replayed, taken apart."""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int64
from torch import Tensor


@dataclass(frozen=True)
class SeriesDraw:
    """Shares, so that a draw fits series of any length and any number of channels.

    crop, time, band: (start, width) of the crop, of the masked stretch and of the masked channels.  The width is a
        share of the whole, the start one among the starts that are possible, both from 0 to 1.
    gain: factor of the values.  sigma: deviation of the noise, which is a function of `noise`, a seed for each series.
    An operation that the view does not have holds its identity: crop (0, 1), width 0, gain 1, sigma 0.
    """

    crop: Float[Tensor, "n 2"]
    gain: Float[Tensor, " n"]
    sigma: Float[Tensor, " n"]
    noise: Int64[Tensor, " n"]
    time: Float[Tensor, "n 2"]
    band: Float[Tensor, "n 2"]

    def __len__(self) -> int:
        return len(self.gain)

    def take(self, index: slice | Int64[Tensor, " m"]) -> "SeriesDraw":
        """The draw of some of the series."""
        return SeriesDraw(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def to(self, device: torch.device | str) -> "SeriesDraw":
        return SeriesDraw(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})
