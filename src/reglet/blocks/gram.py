"""How alike tokens, or samples, are to each other, in two places: their Gram matrices.

    over="tokens":   L = mean over samples and tokens j, k of (<z_j, z_k> - <u_j, u_k>)^2,   |z_j| = |u_j| = 1

Gram anchoring of DINOv3 (Simeoni et al. 2025, arXiv:2508.10104), which has the sum over pairs; its code has the mean,
as here, and by default sets negative products to 0, which this does not.

    over="samples":  G = Z Z^T for samples as vectors, each row of G divided by its length;  L = 1/n^2 |G_z - G_u|_F^2

Similarity-preserving distillation (Tung & Mori, ICCV 2019, arXiv:1907.09682).  Widths may differ in both.
"""

from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from reglet import check, dist
from reglet.blocks.pair import Tokens, checked, unit
from reglet.precision import no_autocast
from reglet.types import Scalar

Over = Literal["tokens", "samples"]


class Gram(nn.Module):
    """gather: with over="samples", the samples of all ranks.

    >>> import torch
    >>> turned = torch.eye(4)[None], torch.eye(4).flip(0)[None]
    >>> Gram()(*turned).item()
    0.0
    """

    any_width = True

    def __init__(self, *, over: Over = "tokens", gather: bool = False) -> None:
        super().__init__()
        check.choice("over", over, get_args(Over))
        check.flag(gather=gather)
        self.over, self.gather = over, gather

    def extra_repr(self) -> str:
        return f"over={self.over}, gather={self.gather}"

    def forward(self, z: Tokens, target: Float[Tensor, "n t e"]) -> Scalar:
        z, target = checked(z, target, any_width=True)
        with no_autocast(z):
            if self.over == "tokens":
                if z.shape[1] < 2:
                    raise ValueError("one token has no others to be compared with: say over='samples'")
                a, b = unit(z), unit(target)
                return (a @ a.mT - b @ b.mT).square().mean()
            rows, others = z.flatten(1), target.flatten(1)
            if self.gather:
                rows, others = dist.concat_over_ranks(rows), dist.concat_over_ranks(others)
            if len(rows) < 2:
                raise ValueError(f"samples are compared with each other: at least 2 are needed, got {len(rows)}")
            return (_similarities(rows) - _similarities(others)).square().mean()


def _similarities(x: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Scaled by the largest entry first, which changes nothing, but that no square overflows."""
    x = x / x.detach().abs().amax().clamp_min(1e-30)
    return unit(x @ x.T)
