"""SMI: mutual information between samples.  Mishra, Ballester & Karatzas 2026, arXiv:2606.08332.

rho_ij is the Pearson correlation, over the d features, of two samples' embeddings, and

    I_ij  = -1/2 log(1 - rho_ij^2 + eps)                                                    (15)
    L_on  = sum_i (1 - I12_ii)^2
    L_off = sum_{i != j} (I_ij)^2  for each of I12, I11, I22                                (4)
    L     = L_on + weight (L_off^12 + L_off^11 + L_off^22)                                  (5)

The paper leaves the forms of L_on and L_off, the weight, eps and the reduction open; squared forms are the reading that
fits its figures best (`on="sq"`, `off="sq"`).  Their optimum is rho = sqrt(1 - e^-2) = 0.93, not 1: beyond it the
on-term rises steeply.  `on="hinge"` is flat there instead.  Since I depends on rho^2, an anti-correlated pair counts as
aligned unless `signed`.  The three Gram products cost 3 n^2 d, against n d^2 of Barlow Twins.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet.losses.base import OnViews, pairs
from reglet.losses.product import product
from reglet.types import Scalar, Terms

On = Literal["sq", "hinge", "neg"]
Off = Literal["sq", "lin"]
Pair = Literal["12", "11", "22"]


def pearson_rows(z: Float[Tensor, "v n d"]) -> tuple[Float[Tensor, "v n d"], Float[Tensor, "v n"]]:
    """Rows centred over features and scaled to unit length, and 1 - |row|^2: 0, but 1 for a row that was constant."""
    zc = z - z.mean(dim=-1, keepdim=True)
    norm = torch.linalg.vector_norm(zc, dim=-1, keepdim=True)
    floor = norm.clamp_min(1e-8)
    return zc / floor, 1 - (norm / floor).squeeze(-1).square()


def on_diagonal(
    a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], missing: Float[Tensor, "n"], *, eps: float, signed: bool
) -> Float[Tensor, "n"]:
    """I_ii, by 1 - rho = (|a - b|^2 + 1 - |a|^2 + 1 - |b|^2) / 2, which has no cancellation near rho = 1."""
    gap = ((a - b).square().sum(dim=-1) + missing) / 2
    gap = gap.clamp_max(1) if signed else gap  # signed: rho < 0 counts as 0
    return -0.5 * torch.log((gap * (2 - gap)).clamp_min(0) + eps)


def off_diagonal(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], *, eps: float) -> Float[Tensor, "n n"]:
    """I_ij with a zero diagonal.  Most rho are small, so log1p: at d = 8192, 1 - rho^2 keeps only four digits of I."""
    rho2 = product(a, b.T).square().clamp_max(1)
    return (-0.5 * torch.log1p(eps - rho2)).fill_diagonal_(0)


class SMILoss(OnViews):
    """
    weight: of the off-diagonal terms (the paper's lambda).
    on: "sq" (target - I)^2, "hinge" relu(target - I)^2, "neg" -I.  off: "sq" I^2, "lin" I.
    pairs: which of the three matrices have their off-diagonals penalised.
    eps: bounds I at -1/2 log eps.  Duplicates in a batch have rho = 1 and a slope of 1/eps: raise it to 1e-4 then.
    reduction: "mean" divides all terms by n, "sum" is eq. 5.

    Beyond two views, the mean over pairs of views.

    >>> import torch
    >>> z = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(0))
    >>> bool(SMILoss()(z).isclose(SMILoss()(3 * z + 1)))  # a correlation sees neither scale nor shift
    True
    """

    least_features = 3  # with two features every correlation is 1 or -1

    def __init__(
        self,
        *,
        weight: float = 0.1,
        on: On = "sq",
        off: Off = "sq",
        pairs: Sequence[Pair] = ("12", "11", "22"),
        eps: float = 1e-6,
        target: float = 1.0,
        signed: bool = False,
        reduction: Literal["mean", "sum"] = "mean",
        gather: bool = False,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, check_finite=check_finite)
        for name, value, allowed in (
            ("on", on, get_args(On)),
            ("off", off, get_args(Off)),
            ("reduction", reduction, ("mean", "sum")),
            *(("pairs", pair, get_args(Pair)) for pair in pairs),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
        if eps <= 0:
            raise ValueError(f"eps must be positive, got {eps}")
        self.weight, self.on, self.off, self.pairs = weight, on, off, tuple(pairs)
        self.eps, self.target, self.signed, self.reduction = eps, target, signed, reduction

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        compared = list(pairs(len(z), n_global))
        unit, missing = pearson_rows(z)
        own: dict[int, Scalar] = {}  # a view's Gram matrix serves all of its pairs
        if "11" in self.pairs:
            own |= {i: self._off(unit[i], unit[i]) for i, _ in compared}
        if "22" in self.pairs:
            own |= {j: self._off(unit[j], unit[j]) for _, j in compared if j not in own}
        on, off = [], []
        for i, j in compared:
            on.append(self._on(unit[i], unit[j], missing[i] + missing[j]))
            off += [self._off(unit[i], unit[j])] if "12" in self.pairs else []
            off += [own[i]] if "11" in self.pairs else []
            off += [own[j]] if "22" in self.pairs else []
        scale = 1 / len(compared) / (z.shape[1] if self.reduction == "mean" else 1)
        redundancy = torch.stack(off).sum() if off else z.new_zeros(())
        return {"alignment": torch.stack(on).sum() * scale, "redundancy": self.weight * redundancy * scale}

    def _on(self, a: Tensor, b: Tensor, missing: Tensor) -> Scalar:
        short = self.target - on_diagonal(a, b, missing, eps=self.eps, signed=self.signed)
        if self.on == "neg":
            return (short - self.target).sum()
        return (F.relu(short) if self.on == "hinge" else short).square().sum()

    def _off(self, a: Tensor, b: Tensor) -> Scalar:
        information = off_diagonal(a, b, eps=self.eps)
        return (information.square() if self.off == "sq" else information).sum()
