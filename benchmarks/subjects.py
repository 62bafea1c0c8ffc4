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
            "SubspaceSIGReg",
            lambda **options: reglet.SubspaceSIGReg(slices=K, **options),
            lambda views, g: _subspace_sigreg(_stack(views), K),
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
        Subject(
            "RDMReg",
            lambda **options: reglet.RDMReg(slices=K, **options),
            lambda views, g: _rdmreg(_stack(views), K),
        ),
        Subject(
            "RectifiedLpJEPALoss",
            lambda **options: reglet.RectifiedLpJEPALoss(slices=K, **options),
            lambda views, g: 125 * _rdmreg(_stack(views), K) + 25 * oracles.rectified_invariance(_stack(views), g),
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
        Subject(
            "KoLeo",
            reglet.KoLeo,
            lambda views, g: torch.stack([oracles.koleo(z) for z in _stack(views)]).mean(),
            lambda L: lambda views, g: torch.stack([L.KoLeoLoss()(z) for z in views]).mean(),
            "KoLeoLoss()",
        ),
        Subject(
            "MMCRLoss",
            reglet.MMCRLoss,
            lambda views, g: sum(oracles.mmcr(_stack(views)), torch.zeros(())),
            lambda L: lambda views, g: L.MMCRLoss()(*_unit_halves(views)),
            "MMCRLoss(), of unit rows",
            peer_takes=lambda v, g: v % 2 == 0,
        ),
        Subject(
            "FroSSL",
            reglet.FroSSL,
            lambda views, g: torch.stack([oracles.frossl_regularizer(z) for z in _stack(views)]).mean(),
        ),
        Subject(
            "FroSSLLoss",
            reglet.FroSSLLoss,
            lambda views, g: sum(oracles.frossl(_stack(views)), torch.zeros(())),
            lambda L: lambda views, g: L.FroSSLLoss()(list(views)),
            "FroSSLLoss()",
        ),
        Subject(
            "CodingRate",
            reglet.CodingRate,
            lambda views, g: -torch.stack([oracles.coding_rate(z) for z in _stack(views)]).mean(),
            lambda L: lambda views, g: -L.emp_ssl_loss.tcr_loss(F.normalize(_stack(views), dim=2), eps=0.2),
            "emp_ssl_loss.tcr_loss(eps=0.2), of unit rows, times -1",
        ),
        Subject(
            "EMPSSLLoss",
            reglet.EMPSSLLoss,
            _emp_ssl,
            lambda L: lambda views, g: _emp_ssl_peer(L.emp_ssl_loss, F.normalize(_stack(views), dim=2)),
            "emp_ssl_loss: -tcr_loss + 200 invariance_loss, of unit rows",
        ),
        Subject(
            "WMSELoss",
            reglet.WMSELoss,
            lambda views, g: oracles.mean_over_pairs(_stack(views), g, oracles.wmse),
            lambda L: lambda views, g: _wmse_peer(L, _stack(views)),
            "Whitening2d(eps=1e-4) and norm_mse_loss, of the whole batch",
            peer_takes=lambda v, g: v == g,
        ),
        Subject(
            "TiCoLoss",
            reglet.TiCoLoss,
            lambda views, g: sum(oracles.tico(_stack(views), g, torch.zeros(())), torch.zeros(())),
            lambda L: lambda views, g: L.TiCoLoss()(torch.cat([*views]), torch.cat([*views][::-1])),
            "TiCoLoss()(cat(z, z'), cat(z', z))",
            peer_takes=lambda v, g: v == 2,
        ),
        Subject(
            "DirectCLRLoss",
            reglet.DirectCLRLoss,
            lambda views, g: oracles.mean_over_pairs(_stack(views)[..., :64], g, oracles.ntxent),
            lambda L: _two(L.DirectCLRLoss()),
            "DirectCLRLoss()",
            peer_takes=lambda v, g: v == 2,
        ),
        Subject(
            "BHEP",
            reglet.BHEP,
            lambda views, g: torch.stack([oracles.bhep(z, z.shape[1] ** -0.5) for z in _stack(views)]).mean(),
        ),
        Subject(
            "RadialVCReg",
            reglet.RadialVCReg,
            lambda views, g: torch.stack([_radial_vcreg(z) for z in _stack(views)]).mean(),
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
    like = z[..., : loss.bases(z).shape[1]] if isinstance(loss, reglet.SubspaceSIGReg) else z
    return torch.cat(list(slices.at(slices.step, like).chunks(slices.count)))


def _weak_sigreg(z: Tensor, k: int) -> Tensor:
    """`peers.slices` gives rows that are scaled already."""
    return oracles.weak_sigreg(z, torch.randn(z.shape[1], k, dtype=z.dtype, device=z.device).T)


def _subspace_sigreg(z: Tensor, k: int) -> Tensor:
    """In the subspaces that reglet drew."""
    inside = [z @ base.T for base in reglet.SubspaceSIGReg().bases(z)]
    w = _directions(inside[0], k)
    return torch.stack([oracles.epps_pulley(each, w) for each in inside]).mean()


def _rdmreg(z: Tensor, k: int) -> Tensor:
    """To the samples that reglet draws in its first step."""
    loss = reglet.RDMReg()
    with torch.autocast(z.device.type, enabled=False):
        x = loss.samples(loss.slices.at(0, z), z.shape[1])
    return oracles.rdmreg(z, _directions(z, k), x)


def _radial_vcreg(z: Tensor) -> Tensor:
    crossed, spread = oracles.radial(z)
    vicreg = 25 * oracles.vicreg_variance(z, eps=1e-6) + oracles.vicreg_covariance(z)
    return vicreg + 100 * crossed - 100 * spread


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


def _emp_ssl(views: Views, g: int) -> Tensor:
    rate = torch.stack([oracles.coding_rate(z) for z in _stack(views)]).mean()
    return -rate - 200 * oracles.cosine_to_the_mean(_stack(views))


def _emp_ssl_peer(theirs: ModuleType, z: Tensor) -> Tensor:
    found: Tensor = -theirs.tcr_loss(z, eps=0.2) + 200 * theirs.invariance_loss(z)
    return found


def _wmse_peer(theirs: ModuleType, z: Tensor) -> Tensor:
    """The batch whole; lightly would refuse one of fewer than 2 d samples, so its parts are called."""
    v, _, d = z.shape
    whiten = theirs.Whitening2d(d, track_running_stats=False, eps=1e-4)
    w = [whiten(view) for view in z]
    pairs = [theirs.wmse_loss.norm_mse_loss(w[i], w[j]) for i in range(v) for j in range(i + 1, v)]
    return torch.stack(pairs).mean()


def _unit_halves(views: Views) -> Sequence[Tensor]:
    """Half of the views for the network, half for its slow copy, as (n, v / 2, d)."""
    return F.normalize(_stack(views), dim=2).transpose(0, 1).chunk(2, dim=1)


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
