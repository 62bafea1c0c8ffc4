"""Channels brought to mean 0 and deviation 1, as the data on the whole has them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.views import check


@dataclass(frozen=True)
class Normalize:
    """(x - mean) / std by channel; the default is ImageNet's.

    One channel takes the average of the three means and deviations, so that grey images need no policy of their own.
    """

    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std):
            raise ValueError(f"one mean and one std for each channel, got {len(self.mean)} and {len(self.std)}")
        if not all(value > 0 for value in self.std):
            raise ValueError(f"std must be positive, got {self.std}")

    def __call__(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return self.into(torch.empty_like(x), x)

    def into(self, out: Float[Tensor, "n c h w"], x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Written to `out`, which may be x itself."""
        check.images(x, channels=(1, len(self.mean)))
        mean, std = (torch.tensor(values, device=x.device, dtype=x.dtype) for values in (self.mean, self.std))
        if x.shape[1] == 1:
            mean, std = mean.mean(0, keepdim=True), std.mean(0, keepdim=True)
        return torch.sub(x, mean[:, None, None], out=out).div_(std[:, None, None])
