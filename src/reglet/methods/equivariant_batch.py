"""Transforms a part of a batch at the entry of the network.  The method that owns the network does not notice."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from reglet.attach import Watch, watch
from reglet.groups import Element, transform

Grid = tuple[int, int]
BlockMaps = dict[str, Tensor]  # block name -> what it put out


class Calls:
    """Finds out which views a call of the backbone has.

    A method calls its backbone with one view, or with several views of one size, concatenated.  The views of each size
    come in order.  `done` raises for a method that does otherwise.
    """

    def __init__(self, sizes: Sequence[Grid], *, n: int) -> None:
        self.n = n
        self.waiting: dict[Grid, list[int]] = {}
        for i, size in enumerate(sizes):
            self.waiting.setdefault(size, []).append(i)

    def next(self, x: Tensor) -> list[int]:
        count, rest = divmod(len(x), self.n)
        waiting = self.waiting.get((x.shape[2], x.shape[3]), [])
        if rest or not 1 <= count <= len(waiting):
            raise RuntimeError(
                f"expected a call of the backbone on views of {self.n} images, {len(waiting)} of which are left at "
                f"this size; got {tuple(x.shape)}"
            )
        views, waiting[:] = waiting[:count], waiting[count:]
        return views

    def done(self) -> None:
        left = [i for members in self.waiting.values() for i in members]
        if left:
            raise RuntimeError(f"the method did not call its backbone on the views {left}, so it cannot be wrapped")


@contextmanager
def partly_transformed(
    backbone: nn.Module, sizes: Sequence[Grid], elements: Sequence[Element], where: Sequence[str], *, n: int, patch: int
) -> Iterator[dict[int, BlockMaps]]:
    """While open, the last images of every view, as many as an element has, enter the backbone transformed.

    A call of the backbone on views of n images becomes several: one for the first images of all views, and one for the
    last images of each view, which have other sizes.  The outputs are joined, so that heads, their batch norms and the
    loss see one batch.  Gives, for each view, the outputs of the blocks `where` for the last images.
    """
    calls, last, seen = Calls(sizes, n=n), len(elements[0].d4), dict[int, BlockMaps]()
    apart: list[tuple[list[int], Tensor]] = []
    inside = False
    eye = watch(backbone, where)

    def split(_: nn.Module, args: tuple[Tensor, ...]) -> Tensor | None:
        if inside:
            return None
        views = calls.next(args[0])
        x = args[0].unflatten(0, (len(views), n))
        apart.append((views, x[:, n - last :]))
        return x[:, : n - last].flatten(0, 1)

    def join(_: nn.Module, __: object, y: Tensor) -> Tensor | None:
        if inside:
            return None
        views, x = apart.pop()
        rest = torch.stack([run(view, part) for view, part in zip(views, x, strict=True)])
        return torch.cat([y.unflatten(0, (len(views), n - last)), rest], dim=1).flatten(0, 1)

    def run(view: int, x: Tensor) -> Tensor:
        nonlocal inside
        inside = True
        try:
            y, seen[view] = _run(backbone, eye, transform(x, elements[view], patch=patch))
        finally:
            inside = False
        return y

    # Our hooks run first before the call and last after it.  So other hooks see each of the separate calls.
    handles = [backbone.register_forward_pre_hook(split, prepend=True), backbone.register_forward_hook(join)]
    try:
        yield seen
    finally:
        eye.remove()
        for handle in handles:
            handle.remove()
    calls.done()


@contextmanager
def observed(
    backbone: nn.Module, sizes: Sequence[Grid], where: Sequence[str], *, n: int
) -> Iterator[dict[int, BlockMaps]]:
    """Gives, for each view, the outputs of the blocks `where`, once it is closed."""
    calls, seen = Calls(sizes, n=n), dict[int, BlockMaps]()
    order: list[list[int]] = []
    eye = watch(backbone, where)
    handle = backbone.register_forward_pre_hook(lambda _, args: order.append(calls.next(args[0])))
    try:
        with eye.open() as taps:
            yield seen
    finally:
        eye.remove()
        handle.remove()
    calls.done()
    for name, outputs in taps.items():
        for views, y in zip(order, outputs, strict=True):
            for view, part in zip(views, y.chunk(len(views)), strict=True):
                seen.setdefault(view, {})[name] = part


def _run(backbone: nn.Module, eye: Watch, x: Tensor) -> tuple[Tensor, BlockMaps]:
    with eye.open() as taps:
        y: Tensor = backbone(x)
    return y, {name: outputs[0] for name, outputs in taps.items()}
