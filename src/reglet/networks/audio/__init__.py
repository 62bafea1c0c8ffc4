"""Clips as log-mel (mels, frames) to features (dim): a front end, four networks, and their pooling.

A class has the published size by default.  The function `..._small` beside it builds one that a CPU trains in seconds.
"""

from reglet.networks.audio.campplus import CAMPPlus, campplus_small
from reglet.networks.audio.eres2net import ERes2Net, eres2net_small
from reglet.networks.audio.mel import log_mel, mel_filters
from reglet.networks.audio.pooling import statistics
from reglet.networks.audio.res2net import Res2Net, res2net_small
from reglet.networks.audio.tdnn import TDNN, tdnn_small

__all__ = [
    "TDNN",
    "CAMPPlus",
    "ERes2Net",
    "Res2Net",
    "campplus_small",
    "eres2net_small",
    "log_mel",
    "mel_filters",
    "res2net_small",
    "statistics",
    "tdnn_small",
]
