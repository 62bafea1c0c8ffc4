"""A teacher that follows its student: theta_t <- m theta_t + (1 - m) theta_s."""

import math
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def half_cosine(done: float, *, start: float, end: float) -> float:
    """From `start` to `end` as `done` goes from 0 to 1: end - (end - start) (1 + cos(pi done)) / 2.

    >>> [round(half_cosine(s, start=0.99, end=1.0), 6) for s in (0.0, 0.5, 1.0)]
    [0.99, 0.995, 1.0]
    """
    return end - (end - start) * (1 + math.cos(math.pi * done)) / 2


class Teacher(nn.Module):
    """A copy of `student` without gradients.  Only `follow` moves it.

    held: if it is 1 on the device, the teacher does not move.  The loop sets it (see `engine.guard`).
    In training its batch norms use the statistics of the batch, like the student's; dropout and drop-path are off.

    >>> student = nn.Linear(2, 2)
    >>> teacher = Teacher(student)
    >>> teacher.follow(student, momentum=0.99)
    >>> any(weight.requires_grad for weight in teacher.parameters())
    False
    """

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.held: Tensor | None = None
        self.net = deepcopy(student).requires_grad_(False)
        self.train(student.training)

    def train(self, mode: bool = True) -> "Teacher":
        super().train(False)
        self.training = mode
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.train(mode)
        return self

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x)
        return y

    @torch.no_grad()
    def follow(self, student: nn.Module, *, momentum: float) -> None:
        """Parameters move by 1 - momentum towards the student's.  The teacher keeps its own buffers."""
        for mine, theirs in zip(self.net.parameters(), student.parameters(), strict=True):
            if self.held is None:
                mine.lerp_(theirs.to(mine.dtype), 1 - momentum)
            else:
                mine.lerp_(theirs.to(mine.dtype), (1 - self.held).to(mine.dtype) * (1 - momentum))
