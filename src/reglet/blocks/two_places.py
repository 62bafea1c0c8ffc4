"""Losses on the tokens of two places, (n, t, d) and (n, t, d) -> scalar."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check, dist
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar

Tokens = Float[Tensor, "n t d"]


def checked(z: Tensor, target: Tensor, *, any_width: bool = False) -> tuple[Tensor, Tensor]:
    """Checked tokens (n, t, d) of two places, in float32 at least.  any_width: they may differ in d."""
    check.tensor("z", z, None, None, None)
    check.tensor("target", target, *z.shape[:2], None if any_width else z.shape[2])
    z, target = at_least_float32(z), at_least_float32(target)
    return (z, target) if z.dtype == target.dtype else (z.double(), target.double())


def unit(y: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Vectors of length 1, in float32 at least.  eps is 1e-6, so the gradient at a vector of zeros is 1e6 and not
    1e12."""
    return F.normalize(at_least_float32(y), dim=-1, eps=1e-6)


class Cosine(nn.Module):
    """The angle between the tokens of two places.

        L = mean over samples and tokens of 1 - cos(z_ij, target_ij)

    REPA (Yu et al., ICLR 2025, arXiv:2410.06940) has it between a block behind an MLP and a frozen encoder, LayerSync
    (Haghighi et al. 2025, arXiv:2510.12581) between a block and a deeper one whose gradient is stopped.  Both leave out
    the 1.

    >>> import torch
    >>> Cosine()(torch.ones(2, 3, 4), -torch.ones(2, 3, 4)).item()
    2.0
    """

    def forward(self, z: Tokens, target: Tokens) -> Scalar:
        z, target = checked(z, target)
        with no_autocast(z):
            return 1 - (unit(z) * unit(target)).sum(-1).mean()


class L2(nn.Module):
    """The squared distance between the tokens of two places.

        L = mean over samples, tokens and features of (z - target)^2

    FitNets (Romero et al., ICLR 2015, arXiv:1412.6550) has half the sum over features, behind a regressor where widths
    differ.  `unit=True` compares directions: vectors of length 1, and the sum over features, which is 2 - 2 cos.

    >>> import torch
    >>> L2()(torch.ones(2, 3, 4), 3 * torch.ones(2, 3, 4)).item()
    4.0
    """

    def __init__(self, *, unit: bool = False) -> None:
        super().__init__()
        check.flag(unit=unit)
        self.unit = unit

    def extra_repr(self) -> str:
        return f"unit={self.unit}"

    def forward(self, z: Tokens, target: Tokens) -> Scalar:
        z, target = checked(z, target)
        with no_autocast(z):
            if self.unit:
                return (unit(z) - unit(target)).square().sum(-1).mean()
            value = (z - target).square().mean()
        check.no_overflow("L2", {"distance": value}, z, target)
        return value


Over = Literal["tokens", "samples"]


class Gram(nn.Module):
    """How alike the tokens of a sample, or the samples, are to each other: the Gram matrices of two places.

        over="tokens"    mean over samples and tokens j, k of (<z_j, z_k> - <u_j, u_k>)^2,   |z_j| = |u_j| = 1
        over="samples"   1/n^2 |G_z - G_u|_F^2,   G = Z Z^T for samples as vectors, each row of G divided by its length

    Tokens: Gram anchoring of DINOv3 (Simeoni et al. 2025, arXiv:2508.10104), which has the sum over pairs; its code has
    the mean, as here, and by default sets negative products to 0, which this does not.  Samples: similarity-preserving
    distillation (Tung & Mori, ICCV 2019, arXiv:1907.09682).  Widths may differ in both.

    gather: with over="samples", the samples of all ranks.

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
    """Scaled by the largest entry first: the result is the same, and no square overflows."""
    x = x / x.detach().abs().amax().clamp_min(1e-30)
    return unit(x @ x.T)


EPS = 1e-12  # of squared products whose largest entries are near 1


class CKA(nn.Module):
    """Linear centred kernel alignment as a loss.  Kornblith et al., ICML 2019, arXiv:1905.00414:

        L = 1 - |T^T Z|_F^2 / (|Z^T Z|_F |T^T T|_F)        rows of Z and T: the tokens of all samples, columns centred

    0 for tokens that differ by a rotation and a scale, so widths may differ and no head is needed.  1, without a
    gradient, if one side is constant.  It is biased downwards if rows are not many more than features.

    gather: use the tokens of all ranks.  The value is that of one process, and under DDP's averaging so is the
        parameter gradient.

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
    """Centred, and scaled to a size near 1.  That does not change the result, and no fourth power overflows."""
    x = x - x.mean(0)
    largest = x.detach().abs().amax()
    return x / torch.where(largest > 0, largest, torch.ones_like(largest))


def _energy(x: Float[Tensor, "m d"], y: Float[Tensor, "m e"]) -> Scalar:
    """|Y^T X|_F^2 = <X X^T, Y Y^T>, by the smaller matrices."""
    if x.shape[1] * y.shape[1] <= len(x) ** 2:
        return (y.T @ x).square().sum()
    return ((x @ x.T) * (y @ y.T)).sum()
