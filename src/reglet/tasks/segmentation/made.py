"""Curves on a mottled ground: what the task trains on when it is given nothing."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from reglet.tasks.segmentation.data import Raw


def curves(n: int = 24, *, size: int = 96, seed: int = 0) -> Raw:
    """Each image has three thin dark waves, 4 px thick, under noise; the last quarter is for testing."""
    generator = torch.Generator().manual_seed(seed)
    images, masks = zip(*(_one(size, generator) for _ in range(n)), strict=True)
    return Raw(images, masks, split=["train" if 4 * i < 3 * n else "test" for i in range(n)])


def _one(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    axis = torch.arange(size) / size
    amplitude, waves, phase, height, turn = torch.rand(5, 3, 1, 1, generator=generator)
    x, y = torch.where(turn < 0.5, axis[None], axis[:, None]), torch.where(turn < 0.5, axis[:, None], axis[None])
    middle = 0.15 + 0.7 * height + 0.15 * amplitude * (2 * math.pi * (1 + 2 * waves) * (x + phase)).sin()
    ink = ((y - middle).abs() < 2 / size).any(0)
    ground = F.interpolate(torch.rand(1, 3, 8, 8, generator=generator), size=(size, size), mode="bilinear")[0]
    image = 0.4 + 0.4 * ground - 0.25 * ink + 0.08 * torch.randn(3, size, size, generator=generator)
    return (255 * image.clamp(0, 1)).to(torch.uint8), ink.to(torch.uint8)
