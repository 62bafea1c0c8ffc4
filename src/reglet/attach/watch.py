"""Reading and rewriting what blocks put out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from reglet.attach.hooks import Hook, recomputing, refuse_compiled
from reglet.attach.select import Where, matching
from reglet.attach.tensors import first_tensor, replace_first

Taps = dict[str, list[Tensor]]  # block name -> its outputs, one per call (a backbone runs once per view)


class Watch:
    """Keeps the outputs of the chosen blocks while open, and only then, in training and in eval.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    >>> watch = Watch(model, "0")
    >>> with watch.open() as taps:
    ...     _ = model(torch.zeros(2, 3))
    >>> taps["0"][0].shape
    torch.Size([2, 4])
    >>> watch.remove()
    """

    def __init__(self, model: nn.Module, where: Where) -> None:
        refuse_compiled(model)
        self._taps: Taps | None = None
        self._versions: list[tuple[str, Tensor, int]] = []
        self._blocks = matching(model, where)
        self._handles = [
            block.register_forward_hook(Hook(self._reader(name), owner="")) for name, block in self._blocks.items()
        ]

    def _reader(self, name: str) -> Callable[..., None]:
        def read(_block: nn.Module, _args: object, output: object) -> None:
            if self._taps is None or recomputing():
                return
            h = first_tensor(output)
            if h is None:
                raise TypeError(f"block {name!r}: no floating-point tensor in its output (a {type(output).__name__})")
            if torch.compiler.is_compiling():  # a graph has no versions: a copy is what the block put out in any case
                self._taps.setdefault(name, []).append(h.clone())
                return
            self._taps.setdefault(name, []).append(h)
            self._versions.append((name, h, 0 if h.is_inference() else h._version))

        return read

    @contextmanager
    def open(self) -> Iterator[Taps]:
        taps: Taps = {}
        self._taps, self._versions = taps, []
        try:
            yield taps
        finally:
            self._taps = None
        versions, self._versions = self._versions, []
        for name, h, version in versions:
            if not h.is_inference() and h._version != version:
                raise RuntimeError(
                    f"the output of {name!r} was modified in place after it was seen, often by a ReLU(inplace=True)"
                )
        for name, block in self._blocks.items():
            if name not in taps:
                raise RuntimeError(
                    f"watched block {name!r} did not run. If it should have: watch a model before compiling it"
                )
            trains = torch.is_grad_enabled() and any(p.requires_grad for p in block.parameters())
            if trains and not all(h.requires_grad for h in taps[name]):
                raise RuntimeError(
                    f"the output of {name!r} has no gradient. Checkpoint it with checkpoint(..., use_reentrant=False)"
                )

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def watch(model: nn.Module, where: Where) -> Watch:
    """Read the outputs of the blocks `where`: `with watch(...).open() as taps: model(x)`.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    >>> with watch(net, "0").open() as taps:
    ...     out = net(torch.zeros(2, 3))
    >>> taps["0"][0].shape
    torch.Size([2, 4])
    """
    return Watch(model, where)


class Alteration:
    """An operator on the outputs of some blocks.  Made by `alter`.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    >>> zeroed = alter(net, "0", torch.zeros_like)
    >>> net(torch.ones(2, 3)).sum().item()
    0.0
    >>> zeroed.remove()
    """

    def __init__(self, handles: list[RemovableHandle]) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def alter(model: nn.Module, where: Where, operator: Callable[[Tensor], Tensor]) -> Alteration:
    """Replace the outputs of the blocks `where` by `operator(h)`, of the same shape, while those blocks train.

    In a tuple or dict the first floating-point tensor is replaced.  A deep copy of the model is not altered.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    >>> noise = alter(net, "0", lambda h: h + 0.1 * torch.randn_like(h))  # in training only
    >>> out = net(torch.zeros(2, 3))
    >>> noise.remove()
    """
    refuse_compiled(model)

    def rewriter(name: str) -> Callable[..., Any]:
        def change(h: Tensor) -> Tensor:
            new = operator(h)
            if new.shape != h.shape:
                raise ValueError(f"block {name!r}: the operator made {tuple(new.shape)} of {tuple(h.shape)}")
            return new

        def rewrite(block: nn.Module, _args: object, output: Any) -> Any:
            if not block.training:
                return None
            value, done = replace_first(output, change)
            if not done:
                raise TypeError(f"block {name!r}: no floating-point tensor in its output (a {type(output).__name__})")
            return value

        return rewrite

    found = matching(model, where)
    return Alteration([b.register_forward_hook(Hook(rewriter(name), owner="")) for name, b in found.items()])
