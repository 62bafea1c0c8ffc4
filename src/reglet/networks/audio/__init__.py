"""Clips as log-mel (mels, frames) to class scores: a front end, four networks, and what they pool by."""

from reglet.networks.audio.campplus import CAMPPlus
from reglet.networks.audio.eres2net import ERes2Net
from reglet.networks.audio.mel import log_mel, mel_filters
from reglet.networks.audio.pooling import statistics
from reglet.networks.audio.res2net import Res2Net
from reglet.networks.audio.tdnn import TDNN

__all__ = ["TDNN", "CAMPPlus", "ERes2Net", "Res2Net", "log_mel", "mel_filters", "statistics"]
