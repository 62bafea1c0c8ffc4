"""SMI: mutual information between samples.  Mishra, Ballester & Karatzas 2026, arXiv:2606.08332.

rho_ij is the Pearson correlation, over the d features, of two samples' embeddings, and

    I_ij  = -1/2 log(1 - rho_ij^2 + eps)                                                    (15)
    L_on  = sum_i (1 - I12_ii)^2
    L_off = sum_{i != j} (I_ij)^2  for each of I12, I11, I22                                (4)
    L     = L_on + weight (L_off^12 + L_off^11 + L_off^22)                                  (5)

The paper does not fix the forms of L_on and L_off, the weight, eps and the reduction.  Squares (`on="sq"`, `off="sq"`)
fit its figures best.  Their optimum is rho = sqrt(1 - e^-2) = 0.93, not 1: beyond it the on-term rises steeply, while
`on="hinge"` stays flat.  I depends on rho^2, so an anti-correlated pair counts as aligned unless `signed`.  The three
Gram products cost 3 n^2 d; Barlow Twins costs n d^2.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Group, Ranks
from reglet.losses.base import OnViews, separate
from reglet.losses.base import pairs as compared_pairs
from reglet.losses.formula import formula
from reglet.losses.product import product
from reglet.losses.shortcut import plain, shortcut
from reglet.losses.smi_kernel import Off, On, alignment_kernel, redundancy_kernel
from reglet.losses.unit_rows import unit_rows
from reglet.schedules import Weight, checked_weight
from reglet.types import Scalar, Terms

Pair = Literal["12", "11", "22"]


def pearson_rows(z: Float[Tensor, "v n d"]) -> tuple[Float[Tensor, "v n d"], Float[Tensor, "v n"]]:
    """Rows centred over features and scaled to unit length; and 1 - |row|^2, which is 0, or 1 for a constant row."""
    zc = z - z.mean(dim=-1, keepdim=True)
    norm = torch.linalg.vector_norm(zc, dim=-1, keepdim=True)
    floor = norm.clamp_min(1e-8)
    return zc / floor, 1 - (norm / floor).squeeze(-1).square()


def on_diagonal(
    a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], missing: Float[Tensor, "n"], *, eps: float, signed: bool
) -> Float[Tensor, "n"]:
    """I_ii, by 1 - rho = (|a - b|^2 + 1 - |a|^2 + 1 - |b|^2) / 2, which loses no digits near rho = 1."""
    gap = ((a - b).square().sum(dim=-1) + missing) / 2
    gap = gap.clamp_max(1) if signed else gap  # signed: rho < 0 counts as 0
    return -0.5 * torch.log((gap * (2 - gap)).clamp_min(0) + eps)


def off_diagonal(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], *, eps: float) -> Float[Tensor, "n n"]:
    """I_ij with a zero diagonal.  Most rho are small: at d = 8192, 1 - rho^2 keeps four digits of I.  Hence log1p."""
    same = torch.eye(len(a), dtype=torch.bool, device=a.device)
    rho2 = product(a, b.T).square().clamp_max(1).masked_fill(same, 0)  # else the backward may have 0 times infinity
    return (-0.5 * torch.log1p(eps - rho2)).masked_fill(same, 0)


@formula("n d")
def smi_alignment(
    *views: Float[Tensor, "n d"],
    compared: Sequence[tuple[int, int]] = ((0, 1),),
    on: On = "sq",
    eps: float = 1e-6,
    target: float = 1.0,
    signed: bool = False,
) -> Scalar:
    """L_on, summed over samples and over the compared pairs of views.

    >>> z = torch.eye(4)
    >>> bool(smi_alignment(z, z, on="neg") < smi_alignment(z, z.roll(1, 0), on="neg"))
    True
    """
    check.choice("on", on, get_args(On))
    check.positive(eps=eps)
    check.finite(target=target)
    check.flag(signed=signed)
    unit, missing = pearson_rows(torch.stack(views))
    every = []
    for i, j in compared:
        short = target - on_diagonal(unit[i], unit[j], missing[i] + missing[j], eps=eps, signed=signed)
        if on == "neg":
            every.append((short - target).sum())
        else:
            every.append((F.relu(short) if on == "hinge" else short).square().sum())
    return torch.stack(every).sum()


@formula("n d")
def smi_redundancy(
    *views: Float[Tensor, "n d"], W: Sequence[Sequence[float]] = ((2, 1), (1, 2)), eps: float = 1e-6, off: Off = "sq"
) -> Scalar:
    """sum_{a <= b} W[a][b] L_off between views a and b, with half of W[a][a] for a = b.

    >>> z = torch.eye(4)
    >>> round(smi_redundancy(z, z).item(), 4)
    0.1249
    """
    check.choice("off", off, get_args(Off))
    check.positive(eps=eps)
    unit, _ = pearson_rows(torch.stack(views))
    total = unit.new_zeros(())
    for a in range(len(views)):
        for b in range(a, len(views)):
            if W[a][b]:
                information = off_diagonal(unit[a], unit[b], eps=eps)
                found = (information.square() if off == "sq" else information).sum()
                total = total + found * (W[a][b] / 2 if a == b else W[a][b])
    return total


class SMILoss(OnViews):
    """
    weight: of the off-diagonal terms (the paper's lambda).
    on: "sq" (target - I)^2, "hinge" relu(target - I)^2, "neg" -I.  off: "sq" I^2, "lin" I.
    pairs: which of the three matrices have their off-diagonals penalised.
    eps: I is at most -1/2 log eps.  Duplicates in a batch have rho = 1 and a slope of 1/eps: take 1e-4 for such data.
    reduction: "mean" divides all terms by n, "sum" is eq. 5.

    With more than two views, the loss is the mean over pairs of views.

    >>> import torch
    >>> z = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(0))
    >>> bool(SMILoss()(z).isclose(SMILoss()(3 * z + 1)))  # a correlation sees neither scale nor shift
    True
    """

    least_features = 3  # with two features every correlation is 1 or -1

    def __init__(
        self,
        *,
        weight: Weight = 0.1,
        on: On = "sq",
        off: Off = "sq",
        pairs: Sequence[Pair] = ("12", "11", "22"),
        eps: float = 1e-6,
        target: float = 1.0,
        signed: bool = False,
        reduction: Literal["mean", "sum"] = "mean",
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.choice("on", on, get_args(On))
        check.choice("off", off, get_args(Off))
        check.choice("reduction", reduction, ("mean", "sum"))
        if not isinstance(pairs, list | tuple):
            raise TypeError(f"pairs must be some of {', '.join(get_args(Pair))}, got {pairs!r}")
        for pair in pairs:
            check.choice("pairs", pair, get_args(Pair))
        check.positive(eps=eps)
        check.finite(target=target)
        self.weight, self.on, self.off, self.pairs = checked_weight("weight", weight), on, off, tuple(pairs)
        self.eps, self.target, self.signed, self.reduction = eps, target, signed, reduction

    def compute_on_ranks(self, z: Tensor | list[Tensor], n_global: int, ranks: Ranks) -> Terms:
        views, compared = separate(z), list(compared_pairs(len(z), n_global))
        W = self._weights(len(views), compared)
        choices: dict[str, Any] = {"on": self.on, "target": self.target, "signed": self.signed, "eps": self.eps}
        rows = unit_rows([z.detach() for z in views], ranks=ranks, center=True) if plain(*views) else None
        if rows is None:
            aligned, redundant = None, None
        else:  # the unit rows serve both kernels
            aligned = lambda *_, **asked: alignment_kernel(rows, compared, **choices, **asked)  # noqa: E731
            redundant = lambda *_, **asked: redundancy_kernel(rows, W, eps=self.eps, off=self.off, **asked)  # noqa: E731
        on = shortcut(partial(smi_alignment, compared=compared, **choices), aligned, *views, ranks=ranks)
        off = shortcut(partial(smi_redundancy, W=W, eps=self.eps, off=self.off), redundant, *views, ranks=ranks)
        scale = 1 / len(compared) / (ranks.samples if self.reduction == "mean" else 1)
        return {"alignment": on * scale, "redundancy": self.now("weight") * off * scale}

    def _weights(self, v: int, compared: list[tuple[int, int]]) -> list[list[float]]:
        """The weight of the information between each two views, counted from both sides."""
        W = [[0.0] * v for _ in range(v)]
        for i, j in compared:
            W[i][i] += 2 * ("11" in self.pairs)
            W[j][j] += 2 * ("22" in self.pairs)
            W[i][j] += "12" in self.pairs
            W[j][i] = W[i][j]
        return W
