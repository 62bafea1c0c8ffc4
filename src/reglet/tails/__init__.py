"""Losses for classes of very different sizes."""

from reglet.tails.bcl import BCL, balanced_contrast
from reglet.tails.logit_adjustment import BalancedSoftmax, LogitAdjustment

__all__ = ["BCL", "BalancedSoftmax", "LogitAdjustment", "balanced_contrast"]
