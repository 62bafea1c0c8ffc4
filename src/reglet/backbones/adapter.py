"""Any network as a backbone."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.attach.tensors import first_tensor
from reglet.backbones.protocol import Grid, map_tokens
from reglet.types import WrongKindError

Pool = Literal["mean", "first"]


class Adapter(nn.Module):
    """A module that returns vectors (n, d), tokens (n, t, d) or a map (n, c, h, w), alone or first in a tuple or dict.

    size: side of a square image, or (height, width), for the dry run that finds `dim`.
    pool: "mean" of the tokens, or the first token if that is a [CLS].
    prefix: the number of tokens before those of the grid.  They are left out of the mean and of `tokens(x)`.

    >>> net = Adapter(nn.Conv2d(3, 8, 3), size=16)
    >>> net.dim, net(torch.zeros(2, 3, 16, 16)).shape, net.tokens(torch.zeros(2, 3, 16, 16))[1]
    (8, torch.Size([2, 8]), (14, 14))
    """

    def __init__(
        self, model: nn.Module, *, size: int | Grid, in_channels: int = 3, pool: Pool = "mean", prefix: int = 0
    ) -> None:
        super().__init__()
        if pool not in ("mean", "first"):
            raise ValueError(f"pool is 'mean' or 'first', got {pool!r}")
        self.model, self.pool, self.prefix = model, pool, prefix
        self.dim = pooled_width(self, size=size, in_channels=in_channels)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        y = self._output(x)
        if y.ndim == 2:
            return y
        if y.ndim == 4:
            return y.mean((2, 3))
        return y[:, 0] if self.pool == "first" else y[:, self.prefix :].mean(1)

    def tokens(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Grid]:
        y = self._output(x)
        if y.ndim == 2:
            raise WrongKindError(f"{type(self.model).__name__} puts out vectors {tuple(y.shape)}, and no tokens")
        if y.ndim == 4:
            return map_tokens(y)
        y = y[:, self.prefix :]
        return y, grid_of(y.shape[1], image=(x.shape[2], x.shape[3]))

    def _output(self, x: Tensor) -> Tensor:
        y = first_tensor(self.model(x))
        if y is None or not 2 <= y.ndim <= 4 or len(y) != len(x):
            got = "none" if y is None else f"shape {tuple(y.shape)}"
            raise TypeError(
                f"expected from {type(self.model).__name__} (n, d), (n, t, d) or (n, c, h, w) with n = {len(x)}, "
                f"got {got}"
            )
        return y


def grid_of(tokens: int, *, image: Grid) -> Grid:
    """The grid with this number of cells and the proportions of the image."""
    h = round((tokens * image[0] / image[1]) ** 0.5)
    if h < 1 or tokens % h or h * image[1] != tokens // h * image[0]:
        raise ValueError(
            f"{tokens} tokens fill no grid with the proportions of an image of {image[0]} x {image[1]}. "
            "If some of them stand for no place, say how many come first: Adapter(..., prefix=1)"
        )
    return h, tokens // h


def pooled_width(model: nn.Module, *, size: int | Grid, in_channels: int) -> int:
    """The width of the model's output for an image.  The model is run once in eval mode, which leaves no trace."""
    modes = {module: module.training for module in model.modules()}
    like = next(model.parameters(), torch.zeros(()))
    height, width = (size, size) if isinstance(size, int) else size
    try:
        model.eval()
        with torch.no_grad():
            y = model(torch.zeros(1, in_channels, height, width, dtype=like.dtype, device=like.device))
            if not isinstance(y, Tensor) or y.ndim != 2:
                got = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
                raise WrongKindError(
                    f"the features of {type(model).__name__} are not one vector for each image: expected (n, d), got "
                    f"{got}. reglet.backbones.Adapter pools tokens (n, t, d) and maps (n, c, h, w)"
                )
    finally:
        for module, mode in modes.items():
            module.training = mode
    return int(y.shape[1])
