"""Regularize what a network represents.

losses   on the embeddings of views: VISReg, SIGReg, Weak-SIGReg, SWD, VICReg, Barlow Twins, NT-Xent, SMI
blocks   on a block's input and output: SIM; on the tokens of two places: cosine, L2, CKA, Gram, patch NT-Xent
groups   quarter turns, flips and scale, on images and on token maps
methods  equivariance around any method: SER (Equivariant), AugSelf, EquiMod, E-SSL, STL
attach   read, regularize or rewrite the blocks of any network by name
schedules  weights that change with the step: cosine, linear, any function; set_step says which step it is
doctor   looks at embeddings while they are trained, and speaks when a disease is sure
latent   on latents and labels: LatentDR, BatchFormer, Mixup, CutMix, Manifold Mixup, MixStyle, Gaussian noise

Names are imported when they are first used: `reglet --help` need not wait for torch.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from reglet.attach import alter as alter
    from reglet.attach import attach as attach
    from reglet.attach.watch import watch as watch
    from reglet.blocks import CKA as CKA
    from reglet.blocks import L2 as L2
    from reglet.blocks import SIM as SIM
    from reglet.blocks import Cosine as Cosine
    from reglet.blocks import Gram as Gram
    from reglet.blocks import PatchNTXent as PatchNTXent
    from reglet.doctor import Doctor as Doctor
    from reglet.entry import adapt as adapt
    from reglet.entry import pretrain as pretrain
    from reglet.entry import train_classifier as train_classifier
    from reglet.freed_memory import keep_freed_memory as keep_freed_memory
    from reglet.groups import D4 as D4
    from reglet.groups import Symmetry as Symmetry
    from reglet.latent import BatchFormer as BatchFormer
    from reglet.latent import CutMix as CutMix
    from reglet.latent import GaussianNoise as GaussianNoise
    from reglet.latent import LatentDR as LatentDR
    from reglet.latent import ManifoldMixup as ManifoldMixup
    from reglet.latent import MixStyle as MixStyle
    from reglet.latent import Mixup as Mixup
    from reglet.losses import BHEP as BHEP
    from reglet.losses import SWD as SWD
    from reglet.losses import BarlowTwinsLoss as BarlowTwinsLoss
    from reglet.losses import CodingRate as CodingRate
    from reglet.losses import DirectCLRLoss as DirectCLRLoss
    from reglet.losses import EMPSSLLoss as EMPSSLLoss
    from reglet.losses import FroSSL as FroSSL
    from reglet.losses import FroSSLLoss as FroSSLLoss
    from reglet.losses import KoLeo as KoLeo
    from reglet.losses import LeJEPALoss as LeJEPALoss
    from reglet.losses import MMCRLoss as MMCRLoss
    from reglet.losses import NTXentLoss as NTXentLoss
    from reglet.losses import RadialVCReg as RadialVCReg
    from reglet.losses import RDMReg as RDMReg
    from reglet.losses import RectifiedLpJEPALoss as RectifiedLpJEPALoss
    from reglet.losses import SIGReg as SIGReg
    from reglet.losses import SMILoss as SMILoss
    from reglet.losses import SubspaceSIGReg as SubspaceSIGReg
    from reglet.losses import SWDLoss as SWDLoss
    from reglet.losses import TiCoLoss as TiCoLoss
    from reglet.losses import VICReg as VICReg
    from reglet.losses import VICRegLoss as VICRegLoss
    from reglet.losses import VISReg as VISReg
    from reglet.losses import VISRegLoss as VISRegLoss
    from reglet.losses import WeakSIGReg as WeakSIGReg
    from reglet.losses import WMSELoss as WMSELoss
    from reglet.methods import ESSL as ESSL
    from reglet.methods import STL as STL
    from reglet.methods import AlignedViews as AlignedViews
    from reglet.methods import AugSelf as AugSelf
    from reglet.methods import EquiMod as EquiMod
    from reglet.methods import Equivariant as Equivariant
    from reglet.methods import PartnerViews as PartnerViews
    from reglet.schedules import set_step as set_step

_ROOMS = {
    "attach": "alter attach",
    "attach.watch": "watch",
    "doctor": "Doctor",
    "blocks": "CKA L2 SIM Cosine Gram PatchNTXent",
    "entry": "adapt pretrain train_classifier",
    "freed_memory": "keep_freed_memory",
    "groups": "D4 Symmetry",
    "latent": "BatchFormer CutMix GaussianNoise LatentDR ManifoldMixup MixStyle Mixup",
    "losses": "SWD BarlowTwinsLoss LeJEPALoss NTXentLoss SIGReg SMILoss SWDLoss VICReg VICRegLoss VISReg VISRegLoss "
    "WeakSIGReg CodingRate DirectCLRLoss EMPSSLLoss FroSSL FroSSLLoss KoLeo MMCRLoss TiCoLoss WMSELoss "
    "BHEP RadialVCReg SubspaceSIGReg RDMReg RectifiedLpJEPALoss",
    "methods": "ESSL STL AlignedViews AugSelf EquiMod Equivariant PartnerViews",
    "schedules": "set_step",
}
_HOME = {name: f"reglet.{room}" for room, names in _ROOMS.items() for name in names.split()}
__all__ = sorted(_HOME)

if not TYPE_CHECKING:  # which would take any name for granted

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("reglet")
        if name in _HOME:
            found = globals()[name] = getattr(import_module(_HOME[name]), name)
            return found
        if not name.startswith("_") and find_spec(f"reglet.{name}"):
            return import_module(f"reglet.{name}")
        raise AttributeError(f"module 'reglet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, "__version__"})


class _TableOfContents(ModuleType):
    """Python sets `reglet.attach` to the room of that name once it is imported.  The function of that name stays."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _TableOfContents
