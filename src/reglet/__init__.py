"""Regularize what a network represents.

losses   on the embeddings of views: VISReg, SIGReg, SWD, VICReg, Barlow Twins, NT-Xent, SMI
blocks   on a block's input and output: SIM; on the tokens of two views: patch NT-Xent
groups   quarter turns, flips and scale, on images and on token maps
methods  equivariance around any method: SER (Equivariant), AugSelf, EquiMod, E-SSL, STL
attach   read, regularize or rewrite the blocks of any network by name
schedules  weights that change with the step: cosine, linear, any function; set_step says which step it is
latent   on latents and labels: LatentDR, BatchFormer, Mixup, CutMix, Manifold Mixup, MixStyle, Gaussian noise
"""

from reglet.attach import alter as alter
from reglet.attach import attach as attach
from reglet.attach import watch as watch
from reglet.blocks import SIM as SIM
from reglet.blocks import PatchNTXent as PatchNTXent
from reglet.groups import D4 as D4
from reglet.groups import Symmetry as Symmetry
from reglet.latent import BatchFormer as BatchFormer
from reglet.latent import CutMix as CutMix
from reglet.latent import GaussianNoise as GaussianNoise
from reglet.latent import LatentDR as LatentDR
from reglet.latent import ManifoldMixup as ManifoldMixup
from reglet.latent import MixStyle as MixStyle
from reglet.latent import Mixup as Mixup
from reglet.losses import SWD as SWD
from reglet.losses import BarlowTwinsLoss as BarlowTwinsLoss
from reglet.losses import LeJEPALoss as LeJEPALoss
from reglet.losses import NTXentLoss as NTXentLoss
from reglet.losses import SIGReg as SIGReg
from reglet.losses import SMILoss as SMILoss
from reglet.losses import SWDLoss as SWDLoss
from reglet.losses import VICRegLoss as VICRegLoss
from reglet.losses import VISReg as VISReg
from reglet.losses import VISRegLoss as VISRegLoss
from reglet.methods import ESSL as ESSL
from reglet.methods import STL as STL
from reglet.methods import AlignedViews as AlignedViews
from reglet.methods import AugSelf as AugSelf
from reglet.methods import EquiMod as EquiMod
from reglet.methods import Equivariant as Equivariant
from reglet.methods import PartnerViews as PartnerViews
from reglet.schedules import set_step as set_step
