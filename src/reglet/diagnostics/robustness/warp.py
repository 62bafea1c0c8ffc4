"""Moving pixels: convolution with a kernel for each image, and reading images at other places."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def splat(
    points: Float[Tensor, "n m 2"], weights: Float[Tensor, " m"] | Float[Tensor, "n m"]
) -> Float[Tensor, "n k k"]:
    """Kernels that average an image over these shifts (x, y), in pixels; a shift in between is shared bilinearly.

    So a blur of less than a pixel is still a blur, and not the identity.
    """
    n = len(points)
    radius = int(points.abs().max().ceil().clamp_min(1))
    side = 2 * radius + 1
    weights = (weights / weights.sum(-1, keepdim=True)).expand(n, -1)
    low = points.floor()
    share = points - low
    kernel = points.new_zeros(
        n, (side + 1) ** 2
    )  # a row and column more: a shift of exactly +radius has its pair there
    for dx in (0, 1):
        for dy in (0, 1):
            x, y = low[..., 0].long() + dx + radius, low[..., 1].long() + dy + radius
            part = (share[..., 0] if dx else 1 - share[..., 0]) * (share[..., 1] if dy else 1 - share[..., 1])
            kernel.scatter_add_(1, y * (side + 1) + x, weights * part)
    return kernel.view(n, side + 1, side + 1)[:, :side, :side].contiguous()


def convolve(x: Float[Tensor, "n c h w"], kernel: Float[Tensor, "_ k k"]) -> Float[Tensor, "n c h w"]:
    """Each image averaged over shifts by its kernel, or by the one there is; borders are reflected.  By FFT."""
    h, w = x.shape[2:]
    r = kernel.shape[-1] // 2
    mode = "reflect" if r < min(h, w) else "replicate"
    padded = F.pad(x, (r, r, r, r), mode=mode)
    size = (h + 2 * r, w + 2 * r)
    product = torch.fft.rfft2(padded) * torch.fft.rfft2(kernel[:, None], s=size)
    return torch.fft.irfft2(product, s=size)[..., 2 * r :, 2 * r :]


def gaussian_blur(x: Float[Tensor, "n c h w"], sigma: float) -> Float[Tensor, "n c h w"]:
    """Separable, to four deviations, the Gaussian integrated over each pixel; borders are reflected."""
    if sigma <= 0:
        return x
    r = max(1, min(round(4 * sigma), min(x.shape[2:]) - 1))
    edges = (torch.arange(-r, r + 2, dtype=torch.float64) - 0.5) / (sigma * 2**0.5)
    taps = torch.special.erf(edges).diff().float()
    taps = (taps / taps.sum()).view(1, 1, -1)
    c = x.shape[1]
    x = F.pad(x, (r, r, r, r), mode="reflect")
    x = F.conv2d(x, taps.view(1, 1, 1, -1).expand(c, 1, 1, -1), groups=c)
    return F.conv2d(x, taps.view(1, 1, -1, 1).expand(c, 1, -1, 1), groups=c)


def pixel_grid(h: int, w: int) -> Float[Tensor, "h w 2"]:
    """Coordinates (x, y) of pixel centres, in pixels from the middle of the image."""
    y, x = torch.meshgrid(torch.arange(h) - (h - 1) / 2, torch.arange(w) - (w - 1) / 2, indexing="ij")
    return torch.stack([x, y], -1)


def sample(x: Float[Tensor, "n c h w"], places: Float[Tensor, "n h w 2"]) -> Float[Tensor, "n c h w"]:
    """x at `places`, in the coordinates of `pixel_grid`, bilinear; outside is the mirror image."""
    h, w = x.shape[2:]
    scale = torch.tensor([2 / w, 2 / h])
    return F.grid_sample(x, places * scale, padding_mode="reflection", align_corners=False)


def warp(x: Float[Tensor, "n c h w"], matrix: Float[Tensor, "3 3"]) -> Float[Tensor, "n c h w"]:
    """The images moved by a homography of the coordinates of `pixel_grid`: the new image at p is the old at M^-1 p."""
    h, w = x.shape[2:]
    grid = pixel_grid(h, w)
    homogeneous = torch.cat([grid, torch.ones(h, w, 1)], -1) @ torch.linalg.inv(matrix).T
    places = homogeneous[..., :2] / homogeneous[..., 2:]
    return sample(x, places.expand(len(x), -1, -1, -1))


def zoomed(x: Float[Tensor, "n c h w"], factor: float) -> Float[Tensor, "n c h w"]:
    """Enlarged about the middle, bilinear, at the same size.  Two matrix products."""
    rows, columns = (_zoom_matrix(side, factor) for side in x.shape[2:])
    return rows @ x @ columns.T


def _zoom_matrix(side: int, factor: float) -> Float[Tensor, "s s"]:
    place = (torch.arange(side) - (side - 1) / 2) / factor + (side - 1) / 2
    return (1 - (place[:, None] - torch.arange(side)).abs()).clamp_min(0)
