"""The decorators of the paper's Algorithm 1, for blocks that you write yourself.

    class ResNetBlock(nn.Module):
        @init_SIM()                                       # step 1
        def __init__(self, in_channels, out_channels): ...

        @forward_with_SIM()                               # step 2
        def forward(self, x): ...

    class ResNet50(nn.Module):
        sim_loss = sim_loss

    total_loss = loss + lambda_sim * model.sim_loss       # step 3

Unlike with `attach`, the heads are children of the blocks: in `model.parameters()`, as in Algorithm 1, and in the
state_dict.  A copy of the model is a model with SIM.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import nn

from reglet.attach.collect import collect
from reglet.attach.tap import Tap
from reglet.blocks.sim import SIM
from reglet.types import Scalar, total

F = TypeVar("F", bound=Callable[..., Any])


def init_SIM(
    sim: SIM | None = None, *, channels: tuple[str, str] = ("in_channels", "out_channels")
) -> Callable[[F], F]:
    """Give each block a head.

    channels: the names of the numbers of input and output channels, as arguments of `__init__` or attributes of the
        block.

    >>> class Block(nn.Module):
    ...     @init_SIM(channels=("width", "width"))
    ...     def __init__(self, width):
    ...         super().__init__()
    ...         self.layer = nn.Conv2d(width, width, 3, padding=1)
    ...     @forward_with_SIM()
    ...     def forward(self, x):
    ...         return x + self.layer(x)
    >>> net = nn.Sequential(Block(8), Block(8))
    >>> out = net(torch.randn(4, 8, 6, 6))
    >>> collect_SIM(net).shape
    torch.Size([])
    """
    sim = SIM() if sim is None else sim
    if sim.match == "shortcut":
        raise ValueError("match='shortcut' needs attach(); a decorated block takes 'stem', 'pre' or 'skip'")

    def decorate(init: F) -> F:
        @wraps(init)
        def init_and_head(self: nn.Module, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            given = inspect.signature(init).bind(self, *args, **kwargs)
            given.apply_defaults()
            c_in, c_out = (_number(self, given.arguments, name) for name in channels)
            tap = Tap(type(self).__name__, self, sim, position=0)
            tap.skipped = c_in != c_out and sim.match == "skip"
            tap.head = None if tap.skipped else sim.head_of(c_in, c_out)
            self.add_module("sim_head", tap.head)
            self.__dict__["sim_tap"] = tap

        return init_and_head  # type: ignore[return-value]

    return decorate


def _number(block: nn.Module, arguments: dict[str, Any], name: str) -> int:
    number = arguments.get(name, getattr(block, name, None))
    if not isinstance(number, int):
        raise TypeError(
            f"{type(block).__name__}.__init__ has no argument {name!r} and sets no such attribute: "
            "say @init_SIM(channels=(name of the channels in, name of the channels out))"
        )
    return number


def forward_with_SIM() -> Callable[[F], F]:
    """Show the block's head the input and output of `forward`.

    >>> class Block(nn.Module):
    ...     @init_SIM()
    ...     def __init__(self, in_channels, out_channels):
    ...         super().__init__()
    ...         self.layer = nn.Conv2d(in_channels, out_channels, 1)
    ...     @forward_with_SIM()
    ...     def forward(self, x):
    ...         return self.layer(x)
    >>> block = Block(8, 16)
    >>> out = block(torch.randn(4, 8, 6, 6))
    >>> collect_SIM(block).shape
    torch.Size([])
    """

    def decorate(forward: F) -> F:
        @wraps(forward)
        def seen(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            tap = getattr(self, "sim_tap", None)
            if not isinstance(tap, Tap):
                raise RuntimeError(f"{type(self).__name__}.__init__ lacks @init_SIM()")
            tap.enter(args, kwargs)
            output = forward(self, *args, **kwargs)
            tap.leave(output)
            return output

        return seen  # type: ignore[return-value]

    return decorate


def collect_SIM(model: nn.Module) -> Scalar:
    """The SIM loss of all decorated blocks in `model`, over all training forwards since the last call.

    >>> class Block(nn.Module):
    ...     @init_SIM()
    ...     def __init__(self, in_channels, out_channels):
    ...         super().__init__()
    ...         self.layer = nn.Conv2d(in_channels, out_channels, 1)
    ...     @forward_with_SIM()
    ...     def forward(self, x):
    ...         return self.layer(x)
    >>> net = nn.Sequential(Block(8, 16), Block(16, 8))
    >>> out = net(torch.randn(4, 8, 6, 6))
    >>> loss = out.square().mean() + 5e-3 * collect_SIM(net)
    """
    taps = [tap for module in model.modules() if isinstance(tap := getattr(module, "sim_tap", None), Tap)]
    sims = [sim for sim in {id(tap.loss): tap.loss for tap in taps}.values() if isinstance(sim, SIM)]
    if not sims:
        raise RuntimeError("no block of this model was decorated with @init_SIM()")
    for i, tap in enumerate(taps):
        tap.name = f"{type(tap.block).__name__} {i}"
    terms = collect(taps, reduction=sims[0].reduction)
    for sim in sims:
        sim.advance()
    return total(terms) if terms else torch.zeros((), device=taps[0].device)


sim_loss = property(collect_SIM)
"""`collect_SIM` as an attribute of the model, as Algorithm 1 has it.

>>> class Net(nn.Module):
...     sim_loss = sim_loss
...     @init_SIM()
...     def __init__(self, in_channels, out_channels):
...         super().__init__()
...         self.layer = nn.Conv2d(in_channels, out_channels, 1)
...     @forward_with_SIM()
...     def forward(self, x):
...         return self.layer(x)
>>> net = Net(8, 16)
>>> out = net(torch.randn(4, 8, 6, 6))
>>> loss = out.square().mean() + 5e-3 * net.sim_loss
"""
