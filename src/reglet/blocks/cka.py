"""Linear centred kernel alignment as a loss.  Kornblith et al., ICML 2019, arXiv:1905.00414:

    L = 1 - |T^T Z|_F^2 / (|Z^T Z|_F |T^T T|_F)            rows of Z and T: the tokens of all samples, columns centred

0 for tokens that differ by a rotation and a scale, so widths may differ and no head is needed.  1 where one side is
constant, with no gradient.  It is biased downwards where there are not many more rows than features.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check, dist
from reglet.blocks.pair import Tokens, checked
from reglet.precision import no_autocast
from reglet.types import Scalar

EPS = 1e-12  # of squared products whose largest entries are near 1


class CKA(nn.Module):
    """gather: the tokens of all ranks; value and, under DDP's averaging, parameter gradient are those of one process.

    >>> z = torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(0))
    >>> abs(round(CKA()(z, 3 * z.flip(2)).item(), 5))
    0.0
    """

    any_width = True

    def __init__(self, *, gather: bool = False) -> None:
        super().__init__()
        check.flag(gather=gather)
        self.gather = gather

    def extra_repr(self) -> str:
        return f"gather={self.gather}"

    def forward(self, z: Tokens, target: Float[Tensor, "n t e"]) -> Scalar:
        z, target = checked(z, target, any_width=True)
        with no_autocast(z):
            rows, others = z.flatten(0, 1), target.flatten(0, 1)
            if self.gather:
                rows, others = dist.concat_over_ranks(rows), dist.concat_over_ranks(others)
            if len(rows) < 2:
                raise ValueError(f"CKA needs at least two tokens in the batch, got {len(rows)}")
            x, y = _centred(rows), _centred(others)
            return 1 - _energy(x, y) / ((_energy(x, x) + EPS).sqrt() * (_energy(y, y) + EPS).sqrt())


def _centred(x: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """Of a size near 1, which changes nothing, but that no fourth power overflows."""
    x = x - x.mean(0)
    largest = x.detach().abs().amax()
    return x / torch.where(largest > 0, largest, torch.ones_like(largest))


def _energy(x: Float[Tensor, "m d"], y: Float[Tensor, "m e"]) -> Scalar:
    """|Y^T X|_F^2 = <X X^T, Y Y^T>, whichever matrices are smaller."""
    if x.shape[1] * y.shape[1] <= len(x) ** 2:
        return (y.T @ x).square().sum()
    return ((x @ x.T) * (y @ y.T)).sum()
