"""What Fabric wraps: the method, entered through a function of it.

DDP, FSDP and Fabric's precision act on `forward` alone, but a step of the gradient cache and an online probe need other
calls of the method.  `model(lambda m: m.encode(x))` has them pass through the same door.
"""

from collections.abc import Callable
from typing import TypeVar

from torch import nn

from reglet.method import Method

T = TypeVar("T")


class Through(nn.Module):
    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, call: Callable[[Method], T]) -> T:
        return call(self.method)
