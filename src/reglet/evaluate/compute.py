"""Where an encoder is run, and in which precision: `accelerator=`, `devices=` and `precision=` of every command."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reglet.engine.launch import require_accelerator
from reglet.engine.settings import Settings
from reglet.moves import moved

HALF = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@dataclass(frozen=True)
class Compute:
    """places: devices that take turns.  precision: as in training; features are float32 afterwards."""

    places: tuple[torch.device, ...] = (torch.device("cpu"),)
    precision: str = "32-true"

    @property
    def place(self) -> torch.device:
        """Where results are."""
        return self.places[0]

    def copies(self, net: nn.Module) -> list[nn.Module]:
        """`net` itself at the first place, and a copy at each other place.  In bf16-true all are rounded copies."""
        if self.precision == "bf16-true":
            return [deepcopy(net).to(place, torch.bfloat16).eval() for place in self.places]
        return [(deepcopy(net) if i else net).to(place).eval() for i, place in enumerate(self.places)]

    def take(self, x: Tensor, i: int = 0) -> Tensor:
        """A batch of the host at place i."""
        return moved([x], self.places[i])[0]

    def cast(self, x: Tensor) -> Tensor:
        """Prepared images as the network's weights are."""
        return x.bfloat16() if self.precision == "bf16-true" else x

    @contextmanager
    def mixed(self) -> Iterator[None]:
        """Autocast, where the precision is a mixed one."""
        half = HALF.get(self.precision)
        with torch.autocast(self.place.type, half or torch.bfloat16, enabled=half is not None):
            yield


def compute(*, accelerator: str = "auto", devices: int = 1, precision: str = "32-true") -> Compute:
    """As the keys of the commands say.

    >>> compute(accelerator="cpu").place
    device(type='cpu')
    """
    Settings(accelerator=accelerator, devices=devices, batch=max(1, devices), precision=precision)  # which checks them
    there = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator == "auto":
        accelerator = there.type if there is not None and there.type in ("cuda", "mps") else "cpu"
    if accelerator == "cpu" and devices > 1:
        raise ValueError(f"devices are GPUs here, and a CPU is one with all of its cores; got devices={devices}")
    require_accelerator(accelerator, devices)
    if accelerator == "cuda":
        return Compute(tuple(torch.device("cuda", i) for i in range(devices)), precision)
    return Compute((torch.device(accelerator),), precision)
