"""Gaussian blur, a sigma for each image."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check


def gaussian_blur(x: Float[Tensor, "n c h w"], sigma: Float[Tensor, " n"], *, kernel: int) -> Float[Tensor, "n c h w"]:
    """A separable window of `kernel` pixels, reflected at the border: torchvision's `gaussian_blur` on floats.

    Both directions are products with a banded matrix for each image, which holds the reflection too.
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
    """`gaussian_blur` without its questions, one of which reads sigma."""
    height, width = x.shape[2:]
    offset = torch.arange(kernel, device=x.device) - kernel // 2
    window = torch.softmax(-0.5 * (offset / sigma[:, None]) ** 2, dim=1)
    columns = _band(window, width)
    rows = columns if height == width else _band(window, height)
    narrow = x.flatten(1, 2) @ columns.mT
    return rows[:, None] @ narrow.unflatten(1, x.shape[1:3])


def _band(window: Float[Tensor, "n k"], size: int) -> Float[Tensor, "n size size"]:
    """Row o weighs the pixels around o; those beyond the border are mirrored back, without repeating the border."""
    k = window.shape[1]
    pixel = torch.arange(size, device=window.device)
    at = pixel[:, None] + torch.arange(k, device=window.device) - k // 2
    at = at.abs()
    at = torch.where(at >= size, 2 * (size - 1) - at, at)
    band = window.new_zeros(len(window), size, size)
    return band.scatter_add_(2, at.expand(len(window), -1, -1), window[:, None, :].expand(-1, size, -1))


@dataclass(frozen=True)
class Blur:
    """sigma uniform in a range, with probability `p`."""

    kernel: int
    sigma: tuple[float, float] = (0.1, 2.0)
    p: float = 0.5

    def __post_init__(self) -> None:
        check.probability(p=self.p)
        check.interval("sigma", self.sigma)
        check.odd(kernel=self.kernel)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, " n"]:
        """sigma; 0 where nothing is blurred."""
        u = torch.rand(n, 2, generator=generator, device=generator.device if generator is not None else "cpu")
        low, high = self.sigma
        return torch.where(u[:, 1] < self.p, low + (high - low) * u[:, 0], 0.0)
