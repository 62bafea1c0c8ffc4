"""Every loss three times: reglet's, the paper's formula written naively, and lightly's with arguments that match.

`views` is a (v, n, d) tensor or a list of (n, d) tensors, of which the first `n_global` are global views.  Formula and
peer draw their slices by torch.randn(d, k), so that `peers.slices` can give both the ones that reglet drew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.nn.functional as F
from tests.losses import oracles
from torch import Tensor

import reglet
from reglet.losses.base import OnViews
from reglet.losses.slices import Slices

Views = Tensor | Sequence[Tensor]
Loss = Callable[[Views, int], Tensor]


@dataclass(frozen=True)
class Subject:
    """make(gather=...) is reglet's loss; `peer(lightly.loss)` is None where lightly has no such loss."""

    name: str
    make: Callable[..., OnViews]
    formula: Loss
    peer: Callable[[ModuleType], Loss] | None = None
    matched: str = ""  # arguments by which the peer computes the same
    peer_takes: Callable[[int, int], bool] = lambda v, n_global: True

    def ours(self, loss: OnViews) -> Loss:
        return lambda views, g: loss(global_views=views[:g], local_views=views[g:] if len(views) > g else None)


def subjects(slices: int) -> list[Subject]:
    """One of each exported loss."""
    K = slices
    return [
        Subject(
            "VISReg",
            lambda **options: reglet.VISReg(slices=K, **options),
            lambda views, g: _visreg(_stack(views), K),
            lambda L: _multicrop(L.VISRegLoss(lambda_param=1.0, num_slices=K, eps=1e-6)),
            "VISRegLoss(lambda_param=1, eps=1e-6)",
        ),
        Subject(
            "VISRegLoss",
            lambda **options: reglet.VISRegLoss(slices=K, **options),
            lambda views, g: 0.9 * _visreg(_stack(views), K) + 0.1 * oracles.invariance(_stack(views), g),
            lambda L: _multicrop(L.VISRegLoss(num_slices=K, eps=1e-6)),
            "VISRegLoss(eps=1e-6)",
        ),
        Subject(
            "SIGReg",
            lambda **options: reglet.SIGReg(slices=K, **options),
            lambda views, g: oracles.epps_pulley(_stack(views), _directions(_stack(views), K)),
            lambda L: _stacked(L.SIGReg(num_vectors=K)),
            "SIGReg()",
        ),
        Subject(
            "WeakSIGReg",
            lambda **options: reglet.WeakSIGReg(slices=K, **options),
            lambda views, g: torch.stack([_weak_sigreg(view, K) for view in _stack(views)]).mean(),
        ),
        Subject(
            "LeJEPALoss",
            lambda **options: reglet.LeJEPALoss(slices=K, **options),
            lambda views, g: (
                0.02 * oracles.epps_pulley(_stack(views), _directions(_stack(views), K))
                + 0.98 * oracles.invariance(_stack(views), g)
            ),
            lambda L: _multicrop(L.LeJEPALoss(lambda_param=0.02, sigreg_num_vectors=K)),
            "LeJEPALoss(lambda_param=0.02)",
            peer_takes=lambda v, g: v > g,
        ),
        Subject(
            "SWD",
            lambda **options: reglet.SWD(slices=K, **options),
            lambda views, g: oracles.sliced_wasserstein(_stack(views), _directions(_stack(views), K)),
        ),
        Subject(
            "SWDLoss",
            lambda **options: reglet.SWDLoss(slices=K, **options),
            lambda views, g: (
                0.6 * oracles.sliced_wasserstein(_stack(views), _directions(_stack(views), K))
                + 0.4 * oracles.invariance(_stack(views), g)
            ),
        ),
        *_between_samples(),
    ]


def _between_samples() -> list[Subject]:
    """The losses without slices, of which lightly takes exactly two views."""
    return [
        Subject(
            "VICReg",
            reglet.VICReg,
            lambda views, g: torch.stack(
                [25 * oracles.vicreg_variance(z) + oracles.vicreg_covariance(z) for z in _stack(views)]
            ).mean(),
        ),
        Subject(
            "VICRegLoss",
            reglet.VICRegLoss,
            _vicreg,
            lambda L: _two(L.VICRegLoss()),
            "VICRegLoss()",
            peer_takes=lambda v, g: v == 2,
        ),
        Subject(
            "BarlowTwinsLoss",
            reglet.BarlowTwinsLoss,
            _barlow,
            lambda L: _two(L.BarlowTwinsLoss(lambda_param=0.0051)),
            "BarlowTwinsLoss(lambda_param=0.0051)",
            peer_takes=lambda v, g: v == 2,
        ),
        Subject(
            "NTXentLoss",
            reglet.NTXentLoss,
            lambda views, g: oracles.mean_over_pairs(_stack(views), g, oracles.ntxent),
            lambda L: _two(L.NTXentLoss()),
            "NTXentLoss()",
            peer_takes=lambda v, g: v == 2,
        ),
        Subject("SMILoss", reglet.SMILoss, lambda views, g: oracles.mean_over_pairs(_stack(views), g, _smi)),
    ]


def subject(name: str, *, slices: int = 1) -> Subject:
    return next(one for one in subjects(slices) if one.name == name)


def directions(loss: OnViews, z: Tensor) -> Tensor | None:
    """The (k, d) slices that `loss` will draw at its next call; None if it draws none."""
    slices = getattr(loss, "slices", None)
    if not isinstance(slices, Slices):
        return None
    return torch.cat(list(slices.at(slices.step, z).chunks(slices.count)))


def _weak_sigreg(z: Tensor, k: int) -> Tensor:
    """`peers.slices` gives rows that are scaled already."""
    return oracles.weak_sigreg(z, torch.randn(z.shape[1], k, dtype=z.dtype, device=z.device).T)


def _directions(z: Tensor, k: int) -> Tensor:
    w = torch.randn(z.shape[-1], k, dtype=z.dtype)
    return F.normalize(w, dim=0).T


def _visreg(z: Tensor, k: int) -> Tensor:
    shape = oracles.visreg_shape(z, _directions(z, k))
    return oracles.visreg_scale(z) + shape + oracles.visreg_center(z)


def _vicreg(views: Views, g: int) -> Tensor:
    invariance, variance, covariance = oracles.vicreg(_stack(views), g)
    return 25 * invariance + 25 * variance + covariance


def _barlow(views: Views, g: int) -> Tensor:
    on, off = oracles.barlow_twins(_stack(views), g)
    return on + 0.0051 * off


def _smi(z0: Tensor, z1: Tensor) -> Tensor:
    on, off = oracles.smi(z0, z1)
    return (on + 0.1 * off) / len(z0)


def _stack(views: Views) -> Tensor:
    return views if isinstance(views, Tensor) else torch.stack(list(views))


def _two(loss: Callable[[Tensor, Tensor], Tensor]) -> Loss:
    return lambda views, g: loss(views[0], views[1])


def _stacked(loss: Callable[[Tensor], Tensor]) -> Loss:
    return lambda views, g: loss(_stack(views))


def _multicrop(loss: Callable[..., Tensor]) -> Loss:
    return lambda views, g: loss(global_proj=_stack(views)[:g], local_proj=_stack(views)[g:])
