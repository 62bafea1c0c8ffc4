"""Image translation without pairs: the parts of CUT.  Park et al., ECCV 2020, arXiv:2007.15651."""

from reglet.networks.translation.discriminator import PatchDiscriminator as PatchDiscriminator
from reglet.networks.translation.discriminator import patch_discriminator_small as patch_discriminator_small
from reglet.networks.translation.generator import Generator as Generator
from reglet.networks.translation.generator import generator_small as generator_small
from reglet.networks.translation.patch_mlp import PatchMLP as PatchMLP
from reglet.networks.translation.patch_nce import patch_nce as patch_nce
