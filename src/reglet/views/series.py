"""Views of series (n, channels, length), such as log-mel or telemetry: crop, scale, jitter, mask.  The draw is kept."""

import math
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reglet import check
from reglet.moves import moved


def crop(x: Float[Tensor, "n c t"], box: Float[Tensor, "n 2"], *, length: int) -> Float[Tensor, "n c length"]:
    """The part (start, width), in shares of the series, linearly interpolated at `length` points including both ends.

    A width of 1 with length = t changes nothing.

    >>> crop(torch.arange(5.0).view(1, 1, 5), torch.tensor([[1.0, 0.5]]), length=3).tolist()
    [[[2.0, 3.0, 4.0]]]
    """
    t = x.shape[2]
    start, width = box.to(x.device, x.dtype).unbind(1)
    span = width * (t - 1)
    steps = torch.linspace(0, 1, length, device=x.device, dtype=x.dtype)
    where = (start * (t - 1 - span))[:, None] + steps * span[:, None]
    left = where.floor().long().clamp(0, t - 1)
    right = (left + 1).clamp(max=t - 1)
    share = (where - left).clamp(0, 1)[:, None]
    a, b = (x.gather(2, i[:, None].expand(-1, x.shape[1], -1)) for i in (left, right))
    return a + share * (b - a)


def scale(x: Float[Tensor, "n c t"], gain: Float[Tensor, " n"]) -> Float[Tensor, "n c t"]:
    """gain x, with one factor for all channels of a series."""
    return x * gain.to(x.device, x.dtype)[:, None, None]


def jitter(x: Float[Tensor, "n c t"], sigma: Float[Tensor, " n"], seed: Int64[Tensor, " n"]) -> Float[Tensor, "n c t"]:
    """x + sigma e.  e is normal, and depends on the series' seed and shape only, not on the batch or the device."""
    return x + noise_like(x, sigma, seed).to(x)


def noise_like(x: Float[Tensor, "n c t"], sigma: Float[Tensor, " n"], seed: Int64[Tensor, " n"]) -> Tensor:
    """sigma e of `jitter`, on the host."""
    noise = torch.zeros(x.shape, dtype=torch.float32, device="cpu")
    generator = torch.Generator()
    for i, (deviation, number) in enumerate(zip(sigma.tolist(), seed.tolist(), strict=True)):
        if deviation > 0:
            drawn = generator.manual_seed(number)
            noise[i] = torch.randn(x.shape[1:], generator=drawn, dtype=torch.float32, device="cpu") * deviation
    return noise


def covered(box: Float[Tensor, "n 2"], size: int) -> Bool[Tensor, "n size"]:
    """Which of `size` places lie in the box: round(width size) of them, never all.  On the host, which has float64."""
    start, width = box.cpu().double().unbind(1)
    count = (width * size).round().clamp(max=size - 1)
    first = (start * (size - count)).round()[:, None]
    place = torch.arange(size, device="cpu")
    return (place >= first) & (place < first + count[:, None])


@dataclass(frozen=True)
class SeriesDraw:
    """The draw of one view, in shares, so that it fits series of any length and any number of channels.

    crop, time, band: (start, width) of the crop, of the masked times and of the masked channels, from 0 to 1.  The
        width is a share of the whole, and the start a share of the possible starts.
    gain: factor of the values.  sigma: deviation of the noise.  noise: the seed of each series' noise.
    An operation that does not happen holds its identity: crop (0, 1), width 0, gain 1, sigma 0.
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
        names = [field.name for field in fields(self)]
        there = moved([getattr(self, name) for name in names], torch.device(device))
        return SeriesDraw(**dict(zip(names, there, strict=True)))


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
        check.interval("crop", self.crop, high=1.0)
        check.whole(0, length=self.length)
        check.between(1, math.inf, gain=self.gain)
        check.not_negative(sigma=self.sigma)
        check.below_one(time=self.time, band=self.band)

    def draw(self, n: int, generator: torch.Generator | None = None) -> SeriesDraw:
        check.whole(0, n=n)
        device = generator.device if generator is not None else torch.device("cpu")
        u = torch.rand(8, n, generator=generator, dtype=torch.float32, device=device)
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
        check.tensor("series (n, channels, length)", x, None, None, None)
        check.one_each(x, draw=draw.gain)
        length = self.length or x.shape[2]
        noise = noise_like(x.new_empty(*x.shape[:2], length, device="meta"), draw.sigma, draw.noise)
        times, channels = covered(draw.time, length), covered(draw.band, x.shape[1])
        box, gain, noise, times, channels = moved([draw.crop, draw.gain, noise, times, channels], x.device)
        y = scale(crop(x, box, length=length), gain) + noise.to(x.dtype)
        return y.masked_fill(times[:, None], 0.0).masked_fill(channels[:, :, None], 0.0)
