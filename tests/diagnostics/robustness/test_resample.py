"""The operations beneath: kernels, convolution, warps."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reglet.diagnostics.robustness.warp import convolve, gaussian_blur, pixel_grid, sample, splat, warp, zoomed


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_splat_keeps_the_mean_shift() -> None:
    points, weights = 3 * rand(4, 9, 2) - 1.5, rand(9)
    kernel = splat(points, weights)
    torch.testing.assert_close(kernel.sum((1, 2)), torch.ones(4))
    r = kernel.shape[-1] // 2
    axis = torch.arange(-r, r + 1.0)
    mean = torch.stack([(kernel.sum(1) * axis).sum(1), (kernel.sum(2) * axis).sum(1)], 1)
    torch.testing.assert_close(mean, (points * weights[None, :, None]).sum(1) / weights.sum())


def test_splat_of_whole_pixels_is_exact() -> None:
    kernel = splat(torch.tensor([[[1.0, 0.0], [0.0, -2.0]]]), torch.tensor([3.0, 1.0]))
    assert kernel.shape == (1, 5, 5)
    assert float(kernel[0, 2, 3]) == 0.75  # [y, x]
    assert float(kernel[0, 0, 2]) == 0.25
    assert float(kernel.sum()) == 1


@pytest.mark.parametrize("k", [3, 7])
def test_convolution_equals_torch(k: int) -> None:
    x, kernel = rand(3, 2, 12, 15), rand(3, k, k, seed=1)
    r = k // 2
    padded = F.pad(x, (r, r, r, r), mode="reflect")
    for i in range(3):
        theirs = F.conv2d(padded[i, :, None], kernel[i].flip(0, 1)[None, None])[:, 0]  # torch correlates
        torch.testing.assert_close(convolve(x, kernel)[i], theirs)
    torch.testing.assert_close(convolve(x, kernel[:1])[2], convolve(x[2:], kernel[:1])[0])


def test_gaussian_has_its_variance() -> None:
    x = torch.zeros(1, 1, 41, 41)
    x[..., 20, 20] = 1
    y = gaussian_blur(x, 2.0)[0, 0]
    axis = torch.arange(41.0) - 20
    assert float(y.sum()) == pytest.approx(1, rel=1e-5)
    for side in (0, 1):
        variance = float((y.sum(side) * axis.square()).sum())
        assert variance == pytest.approx(4 + 1 / 12, rel=0.01)  # a pixel has a width
    assert torch.equal(gaussian_blur(x, 0.0), x)


def turned(degrees: float) -> Tensor:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])


def test_warp_by_known_maps() -> None:
    x = rand(2, 3, 9, 9)
    torch.testing.assert_close(warp(x, torch.eye(3)), x, rtol=0, atol=1e-5)
    torch.testing.assert_close(warp(x, turned(90)), x.rot90(1, (2, 3)), rtol=0, atol=1e-5)
    shift = torch.eye(3)
    shift[0, 2], shift[1, 2] = 2, 1  # right and down
    torch.testing.assert_close(warp(x, shift)[:, :, 1:, 2:], x[:, :, :-1, :-2], rtol=0, atol=1e-5)
    mirrored = warp(x, shift)[:, :, 1:, 1]
    torch.testing.assert_close(mirrored, x[:, :, :-1, 0], rtol=0, atol=1e-5)  # what enters mirrors the border


def test_zoom_equals_sampling() -> None:
    x = rand(2, 3, 10, 14)
    grid = pixel_grid(10, 14).expand(2, -1, -1, -1)
    torch.testing.assert_close(zoomed(x, 1.3), sample(x, grid / 1.3), rtol=0, atol=1e-5)
    torch.testing.assert_close(zoomed(x, 1.0), x)
