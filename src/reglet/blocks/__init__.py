"""Losses on a block's input and output, or on the outputs of two blocks."""

from reglet.blocks.decorators import collect_SIM, forward_with_SIM, init_SIM, sim_loss
from reglet.blocks.patch_ntxent import PatchNTXent, patch_ntxent
from reglet.blocks.sim import SIM
from reglet.blocks.sim_head import SIMHead
from reglet.blocks.two_places import CKA, L2, Cosine, Gram

__all__ = [
    "CKA",
    "L2",
    "SIM",
    "Cosine",
    "Gram",
    "PatchNTXent",
    "SIMHead",
    "collect_SIM",
    "forward_with_SIM",
    "init_SIM",
    "patch_ntxent",
    "sim_loss",
]
