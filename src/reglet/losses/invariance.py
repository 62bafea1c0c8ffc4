"""The invariance term, which draws the views of a sample together: the other half of VISReg, SWD and LeJEPA."""

import inspect
from collections.abc import Callable
from typing import TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.dist import Ranks
from reglet.losses.base import OnViews
from reglet.losses.shortcut import shortcut
from reglet.losses.slices import Slices
from reglet.schedules import Share, Weight, checked_weight
from reglet.types import Scalar, Terms

Init = TypeVar("Init", bound=Callable[..., None])


def invariance(z: Float[Tensor, "v n d"], n_global: int) -> Scalar:
    """L_inv = mean_{v,i,j} (z_vij - mean_{g global} z_gij)^2.

    Every view, global or local, is drawn to the centre of the global ones.  The gradient flows through the centre.  The
    mean is over v, n and d, as in VISReg's code (its paper sums over d).
    """

    def formula(z: Tensor) -> Tensor:
        return (z - z[:n_global].mean(dim=0)).square().mean()

    def kernel(z: Tensor, **_: object) -> tuple[Tensor, list[Tensor]]:
        gap = z - z[:n_global].mean(dim=0)
        flat = gap.reshape(-1)
        value = torch.dot(flat, flat) / z.numel()
        if n_global < len(z):  # else the gaps add up to 0, and no gradient flows through the centre
            gap[:n_global] -= gap.sum(dim=0) / n_global
        return value, [gap.mul_(2 / z.numel())]

    return shortcut(formula, kernel, z, ranks=Ranks((z.shape[1],)))


class WithInvariance(OnViews):
    """L = lam * regularizer + (1 - lam) * invariance.

    lam: a number, a schedule, or the regularizer's share of the gradient, as lam="share:0.3".

    >>> from reglet import SIGReg
    >>> list(WithInvariance(SIGReg(slices=64), lam=0.5).terms(torch.randn(2, 32, 8)))
    ['sigreg', 'invariance']
    """

    def __init__(self, regularizer: OnViews, *, lam: Weight) -> None:
        super().__init__(gather=regularizer.gather, group=regularizer.group, check_finite=regularizer.check_finite)
        self.regularizer, self.lam = regularizer, checked_weight("lam", lam)
        if isinstance(self.lam, int | float):
            _fraction(self.lam)
        if isinstance(self.lam, Share) and regularizer.shares():
            raise ValueError(f"lam is a share of the gradient, so {', '.join(regularizer.shares())} must be weights")

    @property
    def slices(self) -> Slices:
        return cast(Slices, self.regularizer.slices)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        lam = 0.5 if isinstance(self.lam, Share) else _fraction(self.now("lam"))
        weighted = {name: lam * term for name, term in self.regularizer.compute(z, n_global).items()}
        return {**weighted, "invariance": (1 - lam) * invariance(z, n_global)}

    def shares(self) -> dict[str, Share]:
        return super().shares() | self.regularizer.shares()

    def _scaled(self, terms: Terms, owners: dict[str, list[str]], weights: dict[str, Tensor]) -> Terms:
        if "lam" not in weights:
            return super()._scaled(terms, owners, weights)
        lam = weights["lam"] / (1 + weights["lam"])  # the terms were computed with lam = 0.5
        return {
            name: (2 * ((1 - lam) if name == "invariance" else lam)).to(term.dtype) * term
            for name, term in terms.items()
        }


def _fraction(lam: float) -> float:
    check.between(0, 1, lam=lam)
    return lam


def takes_arguments_of(regularizer: type) -> Callable[[Init], Init]:
    """Shows the regularizer's arguments in the help of an `__init__(self, *, lam, **regularizer)`."""

    def shown(init: Init) -> Init:
        own = [p for p in inspect.signature(init).parameters.values() if p.kind is not p.VAR_KEYWORD]
        others = inspect.signature(regularizer).parameters.values()
        init.__signature__ = inspect.Signature([*own, *others])  # type: ignore[attr-defined]
        return init

    return shown
