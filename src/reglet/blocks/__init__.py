"""Losses on a block's input and output."""

from reglet.blocks.sim import SIM
from reglet.blocks.sim_head import SIMHead

__all__ = ["SIM", "SIMHead"]
