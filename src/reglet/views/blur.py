"""Gaussian blur with a sigma for each image."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet import check

_LARGE, _TILE = 128, 16  # pixels


def gaussian_blur(x: Float[Tensor, "n c h w"], sigma: Float[Tensor, " n"], *, kernel: int) -> Float[Tensor, "n c h w"]:
    """A separable window of `kernel` pixels, reflected at the border, as torchvision's `gaussian_blur` on floats.

    Each direction is a product with a banded matrix, which includes the reflection.

    >>> x = torch.zeros(1, 1, 5, 5)
    >>> x[0, 0, 2, 2] = 1
    >>> round(gaussian_blur(x, torch.tensor([1.0]), kernel=3)[0, 0, 2, 2].item(), 3)
    0.204
    """
    check.images(x)
    check.one_each(x, sigma=sigma)
    height, width = x.shape[2:]
    check.odd(kernel=kernel)
    if kernel // 2 >= min(height, width):
        raise ValueError(f"a kernel of {kernel} needs images of at least {kernel // 2 + 1} px, got {height} x {width}")
    if not bool((sigma > 0).all()):
        raise ValueError(f"sigma must be positive, got {float(sigma.min())}")
    return blurred(x, sigma.to(x), kernel=kernel)


def blurred(x: Tensor, sigma: Tensor, *, kernel: int) -> Tensor:
    """`gaussian_blur` without its checks, one of which would wait for the device."""
    height, width = x.shape[2:]
    offset = torch.arange(kernel, device=x.device) - kernel // 2
    window = torch.softmax(-0.5 * (offset / sigma[:, None]) ** 2, dim=1)
    if x.device.type == "cpu" and height % _TILE == width % _TILE == 0 and min(height, width) > _LARGE:
        return torch.cat([_tiled(image, own) for image, own in zip(x.split(1), _taps(window, sigma), strict=True)])
    columns = _band(window, width)
    rows = columns if height == width else _band(window, height)
    narrow = x.flatten(1, 2) @ columns.mT
    return rows[:, None] @ narrow.unflatten(1, x.shape[1:3])


def _band(window: Float[Tensor, "n k"], size: int) -> Float[Tensor, "n size size"]:
    """Row o holds the weights of the pixels around o.  Pixels beyond the border are mirrored without repeating it."""
    k = window.shape[1]
    pixel = torch.arange(size, device=window.device)
    at = pixel[:, None] + torch.arange(k, device=window.device) - k // 2
    at = at.abs()
    at = torch.where(at >= size, 2 * (size - 1) - at, at)
    band = window.new_zeros(len(window), size, size)
    return band.scatter_add_(2, at.expand(len(window), -1, -1), window[:, None, :].expand(-1, size, -1))


def _taps(window: Float[Tensor, "n k"], sigma: Float[Tensor, " n"]) -> list[Float[Tensor, "1 _"]]:
    """Each window without the taps beyond 6 sigma: their weight is below 2e-8, which is nothing in float32."""
    middle = window.shape[1] // 2
    reach = [min(middle, math.ceil(6 * s)) for s in sigma.tolist()]
    return [row[None, middle - r : middle + r + 1] for row, r in zip(window, reach, strict=True)]


def _tiled(x: Tensor, window: Float[Tensor, "n k"]) -> Tensor:
    """The same in tiles that overlap by the window.  The matrix of a whole row would be mostly zeros.

    On a CPU this is twice as fast at 224 px with 23 taps, and slower below 128 px.
    """
    n, width = len(x), x.shape[3]
    k, long = window.shape[1], _TILE + window.shape[1] - 1
    band = window.new_zeros(n, long, _TILE)
    at = torch.arange(_TILE) + torch.arange(k)[:, None]
    band.scatter_(1, at.expand(n, -1, -1), window[:, :, None].expand(-1, -1, _TILE))
    tiles = F.pad(x, (k // 2, k // 2, 0, 0), mode="reflect").unfold(3, long, _TILE)
    narrow = (tiles.reshape(n, -1, long) @ band).view(x.shape)
    tiles = F.pad(narrow, (0, 0, k // 2, k // 2), mode="reflect").unfold(2, long, _TILE)
    return (band.mT[:, None] @ tiles.mT.reshape(n, -1, long, width)).view(x.shape)


@dataclass(frozen=True)
class Blur:
    """A blur with probability `p`, its sigma uniform in a range.

    >>> sigma = Blur(kernel=5, p=1.0).draw(1000)
    >>> bool(sigma.min() >= 0.1), bool(sigma.max() <= 2.0)
    (True, True)
    """

    kernel: int
    sigma: tuple[float, float] = (0.1, 2.0)
    p: float = 0.5

    def __post_init__(self) -> None:
        check.probability(p=self.p)
        check.interval("sigma", self.sigma)
        check.odd(kernel=self.kernel)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, " n"]:
        """sigma; 0 where nothing is blurred."""
        device = generator.device if generator is not None else "cpu"
        u = torch.rand(n, 2, generator=generator, dtype=torch.float32, device=device)
        low, high = self.sigma
        return torch.where(u[:, 1] < self.p, low + (high - low) * u[:, 0], 0.0)
