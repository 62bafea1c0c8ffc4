"""On latents, labels and the classifier."""

from reglet.latent.batchformer import BatchFormer
from reglet.latent.classify import Criterion
from reglet.latent.cross_entropy import CrossEntropy, smooth
from reglet.latent.cutmix import Cut, CutMix
from reglet.latent.gaussian import GaussianNoise, NoisyLatents
from reglet.latent.latentdr import LatentDR
from reglet.latent.manifold_mixup import LayerMix, ManifoldMixup
from reglet.latent.mixstyle import MixStyle, Styles
from reglet.latent.mixup import Mix, Mixup
from reglet.latent.pool import RandomPool

__all__ = [
    "BatchFormer",
    "Criterion",
    "CrossEntropy",
    "Cut",
    "CutMix",
    "GaussianNoise",
    "LatentDR",
    "LayerMix",
    "ManifoldMixup",
    "Mix",
    "MixStyle",
    "Mixup",
    "NoisyLatents",
    "RandomPool",
    "Styles",
    "smooth",
]
