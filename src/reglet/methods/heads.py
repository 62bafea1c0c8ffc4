"""The heads of MoCo-v3, SimSiam and DINO."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def normed_mlp(dim: int, *, widths: Sequence[int]) -> nn.Sequential:
    """Linear - BN - ReLU for every width except the last, which has Linear and a BN without weights.

    It is MoCo-v3's projector with widths (4096, 4096, 256), MoCo-v3's predictor with (4096, 256), and SimSiam's
    projector with (2048, 2048, 2048).  There are no biases, because a BN would remove them.

    >>> [type(layer).__name__ for layer in normed_mlp(16, widths=(32, 8))]
    ['Linear', 'BatchNorm1d', 'ReLU', 'Linear', 'BatchNorm1d']
    """
    if not widths or min(dim, *widths) < 1:
        raise ValueError(f"expected dim and at least one width, all positive; got {dim} and {tuple(widths)}")
    layers: list[nn.Module] = []
    for d_in, d_out in zip((dim, *widths[:-2]), widths[:-1], strict=True):
        layers += [nn.Linear(d_in, d_out, bias=False), nn.BatchNorm1d(d_out), nn.ReLU(inplace=True)]
    last = widths[-1]
    return nn.Sequential(*layers, nn.Linear((dim, *widths)[-2], last, bias=False), nn.BatchNorm1d(last, affine=False))


def require_both(projector: nn.Module | None, predictor: nn.Module | None) -> None:
    """Raise if only a projector is given: our predictors fit our projectors only."""
    if projector is not None and predictor is None:
        raise ValueError("a projector of your own needs a predictor of your own, from its width to its width")


class Prototypes(nn.Module):
    """Cosines between a vector and `count` learned directions: a weight-normed linear layer whose gains stay 1.

    opened: 0 or 1.  At 0 the directions get a zero gradient.  Weight decay may still shrink the weight, but the
        normalization undoes that.  It is a buffer, so that it is saved and can be compiled.
    """

    opened: Tensor

    def __init__(self, dim: int, *, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, dim))
        nn.init.trunc_normal_(self.weight, std=0.02)
        self.register_buffer("opened", torch.ones(()))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        held = self.weight.detach()
        weight = held + self.opened * (self.weight - held)
        return F.linear(F.normalize(x, dim=1), F.normalize(weight, dim=1))


class DINOHead(nn.Module):
    """Three linear layers with GELU between, then the cosines with `out_dim` prototypes.

    >>> DINOHead(16, out_dim=32, hidden=64, bottleneck=8)(torch.randn(4, 16)).shape
    torch.Size([4, 32])
    """

    def __init__(self, dim: int, *, out_dim: int = 65536, hidden: int = 2048, bottleneck: int = 256) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, bottleneck)
        )
        self.last = Prototypes(bottleneck, count=out_dim)
        for m in self.mlp:
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.zeros_(m.bias)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        y: Tensor = self.last(self.mlp(x))
        return y
