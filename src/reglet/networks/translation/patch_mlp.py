"""What PatchNCE compares: some places of some maps, each map through a small network of its own (CUT's H_l)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn


class PatchMLP(nn.Module):
    """Maps, and places in each -> vectors (n, places, width) of each map, by two layers with a ReLU.

    >>> vectors = PatchMLP([8], width=4)([torch.randn(2, 8, 5, 5)], [torch.tensor([0, 7, 24])])
    >>> vectors[0].shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, widths: Sequence[int], *, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(c, width), nn.ReLU(), nn.Linear(width, width)) for c in widths
        )

    def forward(
        self, maps: Sequence[Float[Tensor, "n _c _h _w"]], places: Sequence[Int64[Tensor, " _p"]]
    ) -> list[Float[Tensor, "n _p k"]]:
        return [
            layer(y.flatten(2)[:, :, index].transpose(1, 2))
            for layer, y, index in zip(self.layers, maps, places, strict=True)
        ]


def draw_places(
    maps: Sequence[Float[Tensor, "n _c _h _w"]], *, count: int, generator: torch.Generator | None = None
) -> list[Int64[Tensor, " _p"]]:
    """At most `count` places of each map, without repetition, the same for all images of the batch."""
    return [
        torch.randperm(y.shape[2] * y.shape[3], generator=generator, device=None if generator else y.device)[:count].to(
            y.device
        )
        for y in maps
    ]
