"""One view: what may happen to a series, drawn first and applied after."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.views import check
from reglet.views.series.crop import crop
from reglet.views.series.draw import SeriesDraw
from reglet.views.series.jitter import jitter
from reglet.views.series.mask import mask_channels, mask_time
from reglet.views.series.scale import scale


@dataclass(frozen=True)
class SeriesView:
    """Crop, scale, jitter, mask, in this order, on standardised series (n, channels, length).

    length: of the view; 0: that of the series.  crop: smallest and largest share of the series.
    gain: largest factor g of the values; the smallest is 1 / g, and factors are log-uniform between.
    sigma: largest deviation of the noise.  time, band: largest share of times and of channels that are masked.

    >>> view = SeriesView(crop=(0.5, 1.0), sigma=0.1, time=0.25)
    >>> x = torch.randn(8, 3, 40)
    >>> draw = view.draw(8, torch.Generator().manual_seed(0))
    >>> torch.equal(view.apply(x, draw), view.apply(x, draw))
    True
    """

    length: int = 0
    crop: tuple[float, float] = (1.0, 1.0)
    gain: float = 1.0
    sigma: float = 0.0
    time: float = 0.0
    band: float = 0.0

    def __post_init__(self) -> None:
        check.interval("crop", self.crop, low=0.0, high=1.0)
        if self.length < 0:
            raise ValueError(f"length is a number of places, or 0, got {self.length}")
        if not 1 <= self.gain < math.inf:
            raise ValueError(f"gain is the largest factor, at least 1, got {self.gain}")
        if not 0 <= self.sigma < math.inf:
            raise ValueError(f"sigma is a deviation, got {self.sigma}")
        for name in ("time", "band"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is the share that is masked, below 1, got {getattr(self, name)}")

    def draw(self, n: int, generator: torch.Generator | None = None) -> SeriesDraw:
        device = generator.device if generator is not None else torch.device("cpu")
        u = torch.rand(8, n, generator=generator, device=device)
        low, high = self.crop
        return SeriesDraw(
            crop=torch.stack([u[0], low + (high - low) * u[1]], dim=1),
            gain=self.gain ** (2 * u[2] - 1),
            sigma=self.sigma * u[3],
            noise=torch.randint(2**62, (n,), generator=generator, device=device),
            time=torch.stack([u[4], self.time * u[5]], dim=1),
            band=torch.stack([u[6], self.band * u[7]], dim=1),
        )

    @torch.no_grad()
    def apply(self, x: Float[Tensor, "n c t"], draw: SeriesDraw) -> Float[Tensor, "n c length"]:
        """The same draw gives the same view."""
        if x.ndim != 3 or 0 in x.shape[1:] or not x.is_floating_point():
            raise ValueError(f"series are floating point (n, channels, length), got {x.dtype} {tuple(x.shape)}")
        check.one_each(x, draw=draw.gain)
        y = crop(x, draw.crop, length=self.length or x.shape[2])
        y = jitter(scale(y, draw.gain), draw.sigma, draw.noise)
        return mask_channels(mask_time(y, draw.time), draw.band)
