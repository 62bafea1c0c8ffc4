"""On latents, labels and the classifier."""

from reglet.latent.cutmix import Cut, CutMix
from reglet.latent.mixup import Mix, Mixup

__all__ = ["Cut", "CutMix", "Mix", "Mixup"]
