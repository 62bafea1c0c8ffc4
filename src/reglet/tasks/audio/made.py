"""Clips that are made on the fly, so that the task runs without data: tones that rise, fall, stay and tremble."""

import math

import torch
from torch import Tensor

from reglet.networks.audio.mel import log_mel

CLASSES = ("falls", "rises", "stays", "trembles")
RATE, SECONDS, PER_CLASS = 4000, 0.4, 50


def made_clips(*, mels: int, window: float, hop: float) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...]]:
    """200 clips of four classes under noise, every fifth tested; the same ones always."""
    g = torch.Generator().manual_seed(0)
    n = PER_CLASS * len(CLASSES)
    y = torch.arange(n) % len(CLASSES)
    t = torch.arange(round(RATE * SECONDS)) / RATE
    u = torch.rand(n, 2, generator=g)
    start = (400 + 600 * u[:, :1]).expand(n, len(t))
    slope = torch.tensor([-0.5, 0.5, 0.0, 0.0])[y][:, None] * start / SECONDS
    tremor = torch.tensor([0.0, 0.0, 0.0, 0.3])[y][:, None] * start * torch.sin(2 * math.pi * 8 * (t + u[:, 1:]))
    phase = 2 * math.pi * (start + slope * t + tremor).cumsum(1) / RATE
    x = phase.sin() + 0.3 * torch.randn(n, len(t), generator=g)
    tested = torch.arange(n) // len(CLASSES) % 5 == 4
    return log_mel(x, rate=RATE, mels=mels, window=window, hop=hop), y, tested, CLASSES
