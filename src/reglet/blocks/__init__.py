"""Losses on a block's input and output."""

from reglet.blocks.decorators import collect_SIM, forward_with_SIM, init_SIM, sim_loss
from reglet.blocks.patch_ntxent import PatchNTXent, patch_ntxent
from reglet.blocks.sim import SIM
from reglet.blocks.sim_head import SIMHead

__all__ = [
    "SIM",
    "PatchNTXent",
    "SIMHead",
    "collect_SIM",
    "forward_with_SIM",
    "init_SIM",
    "patch_ntxent",
    "sim_loss",
]
