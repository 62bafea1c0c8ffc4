"""A Fabric on the device of the laws, which for the pretend accelerator Lightning does not know."""

import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators import CPUAccelerator
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.strategies import SingleDeviceStrategy


class Anywhere(CPUAccelerator):
    def setup_device(self, device: torch.device) -> None:
        """There is nothing to set up."""


def fabric_on(device: torch.device, *, scaled: bool = False) -> Fabric:
    """scaled: float16, whose gradients are scaled."""
    if device.type != "pretend":
        return Fabric(accelerator=device.type, devices=1)
    precision = MixedPrecision("16-mixed", device.type) if scaled else None
    return Fabric(
        accelerator=Anywhere(), strategy=SingleDeviceStrategy(torch.device("pretend", 0), precision=precision)
    )
