"""Every view loss, one row each.  A new loss adds a row, and the laws of tests/test_contracts.py sweep it.

A row says how to build the loss, and what its terms are by the naive formulas of tests/losses/oracles.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tests.losses import oracles
from torch import Tensor

import reglet
from reglet.dist import agree
from reglet.losses.slices import EVALUATION

Oracle = Callable[[Tensor, int, Tensor], dict[str, Tensor]]  # z, number of global views, directions -> weighted terms


@dataclass(frozen=True)
class Row:
    name: str
    kind: type
    arguments: dict[str, Any]
    oracle: Oracle
    least_views: int = 2
    least_features: int = 1
    sliced: bool = False
    sorts: bool = False  # among equal samples, which one gets which gradient is the sort's choice
    stopped: str = ""  # a term through which no gradient flows: there it is not the derivative of the value
    remembers: bool = False  # its value depends on earlier calls
    neighbour: Oracle | None = None  # the formula with a constant off by what float32 rounds away beside it

    def build(self, **arguments: Any) -> Any:
        return self.kind(**{**self.arguments, **arguments})


def directions(loss: Any, z: Tensor) -> Tensor:
    """The directions that the next call will use on embeddings like z, or the matrix that it remembers; or nothing."""
    if isinstance(loss, reglet.TiCoLoss):
        return loss.get_extra_state().to(z)
    if not hasattr(loss, "slices"):
        return z.new_zeros(0, z.shape[-1])
    like = z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
    if isinstance(loss, reglet.SubspaceSIGReg):
        like = like[..., : loss.bases(like).shape[1]]
    step = loss.slices.step if loss.training else EVALUATION
    drawn = loss.slices.at(step, like)
    w = torch.cat(list(drawn.chunks(loss.slices.count)))
    rectified = getattr(loss, "regularizer", loss)
    if isinstance(rectified, reglet.RDMReg):  # the samples of its target follow the directions
        n = agree(z, dim=1).samples if loss.gather else z.shape[1]
        w = torch.cat([w, rectified.samples(drawn, n)])
    return w


def expected(row: Row, loss: Any, z: Tensor, n_global: int | None = None) -> dict[str, Tensor]:
    """The terms that the next call of `loss` should give, by the oracle in float64; differentiable in z."""
    return row.oracle(z.double(), len(z) if n_global is None else n_global, directions(loss, z).double())


def _visreg(
    scale: float = 1.0,
    shape: float = 1.0,
    center: float = 1.0,
    eps: float = 1e-6,
    detach: bool = True,
    positions: str = "weibull",
    lam: float | None = None,
) -> Oracle:
    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        reg = {
            "scale": scale * oracles.visreg_scale(z, eps),
            "shape": shape * oracles.visreg_shape(z, w, eps, detach, positions),
            "center": center * oracles.visreg_center(z),
        }
        return reg if lam is None else _with_invariance(reg, z, n_global, lam)

    return terms


def _swd(clamp: float = 1e-4, lam: float | None = None) -> Oracle:
    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        reg = {"swd": oracles.sliced_wasserstein(z, w, clamp)}
        return reg if lam is None else _with_invariance(reg, z, n_global, lam)

    return terms


def _sigreg(knots: int = 17, t_max: float = 3.0, lam: float | None = None) -> Oracle:
    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        reg = {"sigreg": oracles.epps_pulley(z, w, knots, t_max)}
        return reg if lam is None else _with_invariance(reg, z, n_global, lam)

    return terms


def _with_invariance(reg: dict[str, Tensor], z: Tensor, n_global: int, lam: float) -> dict[str, Tensor]:
    weighted = {name: lam * term for name, term in reg.items()}
    return {**weighted, "invariance": (1 - lam) * oracles.invariance(z, n_global)}


def _vicreg(
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    gamma: float = 1.0,
    eps: float = 1e-4,
    variant: str = "official",
) -> Oracle:
    def terms(z: Tensor, n_global: int, _: Tensor) -> dict[str, Tensor]:
        inv, var, cov = oracles.vicreg(z, n_global, gamma, eps, variant)
        every = {"invariance": invariance * inv, "variance": variance * var, "covariance": covariance * cov}
        return {name: every[name] for name in every if variant != "visreg" or name != "invariance"}

    return terms


def _vicreg_alone(variance: float = 25.0, covariance: float = 1.0, gamma: float = 1.0, eps: float = 1e-4) -> Oracle:
    def terms(z: Tensor, n_global: int, _: Tensor) -> dict[str, Tensor]:
        found = [(oracles.vicreg_variance(view, gamma, eps), oracles.vicreg_covariance(view)) for view in z]
        v, c = (torch.stack(each).mean() for each in zip(*found, strict=True))
        return {"variance": variance * v, "covariance": covariance * c}

    return terms


def _weak_sigreg() -> Oracle:
    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        return {"weak_sigreg": torch.stack([oracles.weak_sigreg(view, w) for view in z]).mean()}

    return terms


def _barlow(weight: float = 0.0051, eps: float = 1e-5, variant: str = "official") -> Oracle:
    def terms(z: Tensor, n_global: int, _: Tensor) -> dict[str, Tensor]:
        on, off = oracles.barlow_twins(z, n_global, eps, variant)
        return {"invariance": on, "redundancy": weight * off}

    return terms


def _ntxent(temperature: float = 0.5) -> Oracle:
    def terms(z: Tensor, n_global: int, _: Tensor) -> dict[str, Tensor]:
        return {"contrast": oracles.mean_over_pairs(z, n_global, lambda a, b: oracles.ntxent(a, b, temperature))}

    return terms


def _smi(weight: float = 0.1, reduction: str = "mean", **arguments: Any) -> Oracle:
    def terms(z: Tensor, n_global: int, _: Tensor) -> dict[str, Tensor]:
        views, n, _d = z.shape
        found = [oracles.smi(z[i], z[j], **arguments) for i in range(n_global) for j in range(i + 1, views)]
        on, off = torch.stack(found).mean(dim=0) / (n if reduction == "mean" else 1)
        return {"alignment": on, "redundancy": weight * off}

    return terms


def _koleo(eps: float = 1e-8) -> Oracle:
    return lambda z, _g, _w: {"koleo": torch.stack([oracles.koleo(view, eps) for view in z]).mean()}


def _mmcr(**arguments: Any) -> Oracle:
    return lambda z, _g, _w: dict(zip(("capacity", "invariance"), oracles.mmcr(z, **arguments), strict=True))


def _frossl_alone() -> Oracle:
    return lambda z, _g, _w: {"frossl": torch.stack([oracles.frossl_regularizer(view) for view in z]).mean()}


def _frossl(weight: float = 1.0) -> Oracle:
    def terms(z: Tensor, n_global: int, _: Tensor) -> dict[str, Tensor]:
        reg, gap = oracles.frossl(z)
        return {"frossl": reg, "invariance": weight * gap}

    return terms


def _coding_rate(**arguments: Any) -> Oracle:
    return lambda z, _g, _w: {
        "coding_rate": -torch.stack([oracles.coding_rate(view, **arguments) for view in z]).mean()
    }


def _emp_ssl(weight: float = 200.0, normalize: bool = True, **arguments: Any) -> Oracle:
    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        rate = _coding_rate(normalize=normalize, **arguments)(z, n_global, w)
        return {**rate, "invariance": -weight * oracles.cosine_to_the_mean(z, normalize)}

    return terms


def _wmse(eps: float = 1e-4) -> Oracle:
    return lambda z, g, _: {"invariance": oracles.mean_over_pairs(z, g, lambda a, b: oracles.wmse(a, b, eps))}


def _directclr(dims: int = 64, temperature: float = 0.5) -> Oracle:
    return lambda z, g, w: _ntxent(temperature)(z[..., :dims], g, w)


def _tico(**arguments: Any) -> Oracle:
    """`w` is what the loss remembers: the covariance before the call."""

    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        before = w if len(w) else z.new_zeros(z.shape[2], z.shape[2])
        return dict(zip(("invariance", "covariance"), oracles.tico(z, n_global, before, **arguments), strict=True))

    return terms


def _bhep(beta: float | None = None) -> Oracle:
    return lambda z, _g, _w: {
        "bhep": torch.stack([oracles.bhep(view, beta or z.shape[2] ** -0.5) for view in z]).mean()
    }


def _radial(
    cross_entropy: float = 100.0, entropy: float = 100.0, gamma: float = 1.0, eps: float = 1e-6, **weights: float
) -> Oracle:
    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        found = [oracles.radial(view, eps) for view in z]
        crossed, spread = (torch.stack(each).mean() for each in zip(*found, strict=True))
        vicreg = _vicreg_alone(gamma=gamma, eps=eps, **weights)(z, n_global, w)
        return {**vicreg, "cross_entropy": cross_entropy * crossed, "entropy": -entropy * spread}

    return terms


def _subspace_sigreg(subspaces: int = 4, subspace_dim: int | None = None) -> Oracle:
    """Orthonormal bases are the loss's own: a test of their own holds them."""

    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        bases = reglet.SubspaceSIGReg(subspaces=subspaces, subspace_dim=subspace_dim).bases(z)
        found = [oracles.epps_pulley(z @ base.T, w) for base in bases]
        return {"sigreg": torch.stack(found).mean()}

    return terms


def _rdmreg(p: float = 1.0, mu: float = 0.0, sigma: float | None = None) -> Oracle:
    """Directions and samples of the target are the loss's own: tests of their own hold them."""

    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        n = z.shape[1]
        return {"rdmreg": oracles.rdmreg(z, w[:-n], w[-n:])}

    return terms


def _rectified_lpjepa(invariance: float = 25.0, weight: float = 125.0, **target: Any) -> Oracle:
    def terms(z: Tensor, n_global: int, w: Tensor) -> dict[str, Tensor]:
        reg = weight * _rdmreg(**target)(z, n_global, w)["rdmreg"]
        return {"rdmreg": reg, "invariance": invariance * oracles.rectified_invariance(z, n_global)}

    return terms


def _stopped(kind: type, arguments: dict[str, Any]) -> str:
    if kind is reglet.TiCoLoss:
        return "covariance"
    return "shape" if kind in (reglet.VISReg, reglet.VISRegLoss) and arguments.get("detach", True) else ""


def _row(name: str, kind: type, oracle: Callable[..., Oracle], slices: int | None = None, /, **arguments: Any) -> Row:
    """`arguments` go to the loss and, but for those that change no formula, to the oracle."""
    alone = kind in ALONE or name == "barlow-visreg"
    formula = {k: v for k, v in arguments.items() if k not in ("shared_slices", "seed")}
    if kind in DEFAULT_LAM:
        formula = {"lam": DEFAULT_LAM[kind], **formula}
    return Row(
        name=name,
        kind=kind,
        arguments=arguments if slices is None else {"slices": slices, **arguments},
        oracle=oracle(**formula),
        least_views=1 if alone else 2,
        least_features=3 if kind is reglet.SMILoss else 1,
        sliced=slices is not None,
        sorts=kind in SORTS,
        stopped=_stopped(kind, arguments),
        remembers=kind is reglet.TiCoLoss,
        neighbour=_smi(**{**formula, "eps": formula.get("eps", 1e-6) + 2**-21}) if kind is reglet.SMILoss else None,
    )


ALONE = (
    *(reglet.VISReg, reglet.SWD, reglet.SIGReg, reglet.VICReg, reglet.WeakSIGReg),
    *(reglet.KoLeo, reglet.FroSSL, reglet.CodingRate),
    *(reglet.BHEP, reglet.RadialVCReg, reglet.SubspaceSIGReg, reglet.RDMReg),
)
SORTS = (reglet.VISReg, reglet.VISRegLoss, reglet.SWD, reglet.SWDLoss, reglet.RDMReg, reglet.RectifiedLpJEPALoss)
DEFAULT_LAM = {reglet.VISRegLoss: 0.9, reglet.SWDLoss: 0.6, reglet.LeJEPALoss: 0.02}

# 260 slices: two whole blocks of 128 and a part of a third.
ROWS = [
    _row("visreg", reglet.VISReg, _visreg, 260),
    _row("visreg-weights", reglet.VISReg, _visreg, 128, scale=2.0, shape=0.5, center=3.0, eps=1e-3, seed=7),
    _row("visreg-hazen", reglet.VISReg, _visreg, 129, positions="hazen", shared_slices=True),
    _row("visreg-attached", reglet.VISReg, _visreg, 5, detach=False),
    _row("visreg-loss", reglet.VISRegLoss, _visreg, 260),
    _row("visreg-loss-lam", reglet.VISRegLoss, _visreg, 33, lam=0.6, scale=0.5, detach=False, shared_slices=True),
    _row("swd", reglet.SWD, _swd, 260),
    _row("swd-clamp", reglet.SWD, _swd, 5, clamp=0.1, shared_slices=True),
    _row("swd-loss", reglet.SWDLoss, _swd, 260),
    _row("swd-loss-lam", reglet.SWDLoss, _swd, 128, lam=0.25),
    _row("sigreg", reglet.SIGReg, _sigreg, 260),
    _row("sigreg-knots", reglet.SIGReg, _sigreg, 129, knots=8, t_max=5.0, shared_slices=False),
    _row("lejepa", reglet.LeJEPALoss, _sigreg, 260),
    _row("lejepa-lam", reglet.LeJEPALoss, _sigreg, 5, lam=0.3, knots=33, t_max=4.0, shared_slices=False),
    _row("weak-sigreg", reglet.WeakSIGReg, _weak_sigreg, 3),
    _row("vicreg-alone", reglet.VICReg, _vicreg_alone),
    _row("vicreg-alone-weights", reglet.VICReg, _vicreg_alone, variance=3.0, covariance=5.0, gamma=2.0, eps=1e-2),
    _row("vicreg", reglet.VICRegLoss, _vicreg),
    _row("vicreg-paper", reglet.VICRegLoss, _vicreg, variant="paper"),
    _row("vicreg-solo", reglet.VICRegLoss, _vicreg, variant="solo"),
    _row("vicreg-visreg", reglet.VICRegLoss, _vicreg, variant="visreg"),
    _row(
        "vicreg-weights", reglet.VICRegLoss, _vicreg, invariance=2.0, variance=3.0, covariance=5.0, gamma=2.0, eps=1e-2
    ),
    _row("barlow", reglet.BarlowTwinsLoss, _barlow),
    _row("barlow-weight", reglet.BarlowTwinsLoss, _barlow, weight=0.5, eps=1e-2),
    _row("barlow-visreg", reglet.BarlowTwinsLoss, _barlow, variant="visreg"),
    _row("ntxent", reglet.NTXentLoss, _ntxent),
    _row("ntxent-cold", reglet.NTXentLoss, _ntxent, temperature=0.07),
    _row("smi", reglet.SMILoss, _smi),
    _row("smi-hinge-lin", reglet.SMILoss, _smi, on="hinge", off="lin", weight=0.01, eps=1e-4),
    _row("smi-neg-sum", reglet.SMILoss, _smi, on="neg", reduction="sum", weight=0.5),
    _row("smi-signed-cross", reglet.SMILoss, _smi, signed=True, target=0.5, pairs=("12",)),
    _row("koleo", reglet.KoLeo, _koleo),
    _row("koleo-eps", reglet.KoLeo, _koleo, eps=0.1),
    _row("mmcr", reglet.MMCRLoss, _mmcr),
    _row("mmcr-weight", reglet.MMCRLoss, _mmcr, weight=2.0, normalize=False),
    _row("frossl-alone", reglet.FroSSL, _frossl_alone),
    _row("frossl", reglet.FroSSLLoss, _frossl),
    _row("frossl-weight", reglet.FroSSLLoss, _frossl, weight=0.3),
    _row("coding-rate", reglet.CodingRate, _coding_rate),
    _row("coding-rate-free", reglet.CodingRate, _coding_rate, eps=2.0, normalize=False),
    _row("emp-ssl", reglet.EMPSSLLoss, _emp_ssl),
    _row("emp-ssl-free", reglet.EMPSSLLoss, _emp_ssl, weight=3.0, eps=0.5, normalize=False),
    _row("wmse", reglet.WMSELoss, _wmse),
    _row("wmse-eps", reglet.WMSELoss, _wmse, eps=0.1),
    _row("directclr", reglet.DirectCLRLoss, _directclr, dims=3),
    _row("tico", reglet.TiCoLoss, _tico),
    _row("tico-beta", reglet.TiCoLoss, _tico, beta=0.5, rho=1.0),
    _row("bhep", reglet.BHEP, _bhep),
    _row("bhep-beta", reglet.BHEP, _bhep, beta=0.05),
    _row("radial-vcreg", reglet.RadialVCReg, _radial),
    _row("radial-weights", reglet.RadialVCReg, _radial, variance=3.0, entropy=0.5, gamma=2.0, eps=1e-3),
    _row("subspace-sigreg", reglet.SubspaceSIGReg, _subspace_sigreg, 130, subspaces=2),
    _row("subspace-dim", reglet.SubspaceSIGReg, _subspace_sigreg, 5, subspaces=4, subspace_dim=2),
    _row("rdmreg", reglet.RDMReg, _rdmreg, 260),
    _row("rdmreg-shared", reglet.RDMReg, _rdmreg, 129, p=2.0, mu=-1.0, shared_slices=True, seed=3),
    _row("rdmreg-p", reglet.RDMReg, _rdmreg, 5, p=0.7, sigma=0.4),
    _row("rectified-lpjepa", reglet.RectifiedLpJEPALoss, _rectified_lpjepa, 130),
    _row("rectified-weights", reglet.RectifiedLpJEPALoss, _rectified_lpjepa, 5, invariance=2.0, weight=3.0, mu=0.5),
    _row("smi-within", reglet.SMILoss, _smi, pairs=("11", "22"), off="lin"),
]

# Losses between the samples of a batch, without slices.
PAIR_LOSSES = {
    *(reglet.VICReg, reglet.VICRegLoss, reglet.BarlowTwinsLoss, reglet.NTXentLoss, reglet.SMILoss, reglet.KoLeo),
    *(reglet.MMCRLoss, reglet.FroSSL, reglet.FroSSLLoss, reglet.CodingRate, reglet.EMPSSLLoss, reglet.WMSELoss),
    *(reglet.DirectCLRLoss, reglet.BHEP, reglet.RadialVCReg),
}

# One row of each class, with all of its terms: for what costs seconds a row (compilation, processes).
PLAIN = {"visreg", "visreg-loss", "swd", "swd-loss", "sigreg", "lejepa", "vicreg", "barlow", "ntxent", "smi"} | {
    "vicreg-alone",
    "weak-sigreg",
    *("koleo", "mmcr", "frossl-alone", "frossl", "coding-rate", "emp-ssl", "wmse", "directclr", "tico"),
    *("bhep", "radial-vcreg", "subspace-sigreg", "rdmreg", "rectified-lpjepa"),
}
PLAIN_ROWS = [row for row in ROWS if row.name in PLAIN]
