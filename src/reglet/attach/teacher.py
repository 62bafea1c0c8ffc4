"""A frozen network beside the one that trains."""

from typing import Any

import torch
from torch import nn

from reglet.attach.tap import Tap


class FrozenTeacher:
    """A network that runs in eval mode and without gradients on the model's arguments.  Its modes are restored.

    taps: of its blocks.  They keep outputs only while the network runs here.
    """

    def __init__(self, network: nn.Module, taps: list[Tap]) -> None:
        self.network, self.taps = network, taps
        for tap in taps:
            tap.told = True

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        training = [module for module in self.network.modules() if module.training]
        try:
            for module in training:
                module.training = False
            for tap in self.taps:
                tap.building = True
            with torch.no_grad():
                self.network(*args, **kwargs)
        finally:
            for module in training:
                module.training = True
            for tap in self.taps:
                tap.building = False
