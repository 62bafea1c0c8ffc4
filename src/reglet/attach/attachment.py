"""`attach`: a loss on the hidden blocks of any network, by name, without touching the network."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from reglet.attach.hooks import Hook, owners, refuse_compiled
from reglet.attach.select import Where, matching
from reglet.attach.tap import PerBlock, Tap, collect
from reglet.dist import sum_over_ranks, world_size
from reglet.types import BlockLoss, Scalar, Terms, total

MOST_FORWARDS = 64  # of the model between two calls of loss(): then somebody forgot it, and memory is filling up


def attach(
    model: nn.Module,
    where: Where,
    loss: BlockLoss | PerBlock,
    *,
    name: str | None = None,
    example: Any = None,
    allow_unused: bool = False,
) -> "Attachment":
    """Watch the blocks `where` (name, glob, list, class, predicate) and put `loss` on the input and output of each.

        sim = reglet.attach(model, "layer*.*", reglet.SIM(), example=x)
        optimizer = SGD([*model.parameters(), *sim.parameters()], lr=0.1)
        loss = criterion(model(x), y) + 5e-3 * sim.loss()
        sim.remove()

    name: a block takes several attachments if their names differ; the class of the loss if not given.
    example: a batch (tensor, tuple of arguments or dict of them) that is run once in eval mode, so that the heads exist
        when this returns.  Otherwise they appear in the first forward in training mode.
    allow_unused: blocks that did not run (LayerDrop) are left out of the loss, instead of an error.

    A deep copy or pickle of the model is free of the attachment.  Attach before `torch.compile`.
    """
    refuse_compiled(model)
    name = type(loss).__name__ if name is None else name
    blocks = matching(model, where)
    for path, block in blocks.items():
        if name in owners(block):
            raise ValueError(
                f"block {path!r} already has an attachment named {name!r}: remove() that one, or give this one a name="
            )
    attachment = Attachment(model, blocks, loss, name=name, allow_unused=allow_unused)
    if example is not None:
        try:
            attachment.build(example)
        except BaseException:
            attachment.remove()
            raise
    return attachment


class Attachment:
    """A block loss on the blocks of one model.  Made by `attach`.

    `heads` holds what is trained besides the model, outside its state_dict: save and load `heads.state_dict()`,
    and if the model moves to another device after they were built, `heads.to(device)`.

    On several ranks the model's DDP does not know the heads: call `average_gradients()` between backward and step, or
    put `heads` under the same DDP wrapper as the model.  They start equal on all ranks.
    """

    def __init__(
        self,
        model: nn.Module,
        blocks: Mapping[str, nn.Module],
        loss: BlockLoss | PerBlock,
        *,
        name: str,
        allow_unused: bool,
    ) -> None:
        self.name, self._model, self._loss, self._allow_unused = name, model, loss, allow_unused
        self._taps = [Tap(path, block, loss, position=i) for i, (path, block) in enumerate(blocks.items())]
        self._handles: list[RemovableHandle] = []
        self._forwards = 0
        self._handles.append(model.register_forward_pre_hook(Hook(self._count, owner="")))
        for tap in self._taps:
            self._handles += _hook(tap, loss, owner=name)

    @property
    def blocks(self) -> list[str]:
        """Names of the blocks that count in the loss."""
        return [tap.name for tap in self._taps if not tap.skipped]

    @property
    def heads(self) -> nn.ModuleDict:
        """What is trained besides the model, by block name (with / for .)."""
        waiting = [tap.name for tap in self._taps if not tap.built]
        if waiting:
            raise RuntimeError(
                f"the heads of {', '.join(waiting)} do not exist yet: they are built in the first forward in training "
                "mode. Give attach(..., example=x) to build them at once."
            )
        heads = {tap.name.replace(".", "/") or "model": tap.head for tap in self._taps if tap.head is not None}
        return nn.ModuleDict(heads)

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the heads, for the optimizer."""
        return self.heads.parameters()

    def loss(self) -> Scalar:
        """The loss of all training forwards since the last call, averaged over the calls of a block, then over blocks
        (or summed, if the loss says so).  Zero if they all were in eval mode, or if gradients are off here and there.
        """
        terms = self.terms()
        return total(terms) if terms else torch.zeros((), device=self._taps[0].device)

    def terms(self) -> Terms:
        """The share of every block in `loss()`, by name.  Like `loss()`, it starts anew."""
        try:
            reduction = self._loss.reduction if isinstance(self._loss, PerBlock) else "mean"
            return collect(self._taps, reduction=reduction, allow_unused=self._allow_unused)
        finally:
            self.clear()

    def clear(self) -> None:
        """Forget what was seen since the last `loss()`."""
        self._forwards = 0
        for tap in self._taps:
            tap.clear()
        if isinstance(self._loss, PerBlock):
            self._loss.advance()

    def average_gradients(self) -> None:
        """Average the gradients of the heads over all ranks, as DDP does for the model.  One process: nothing."""
        if world_size() == 1:
            return
        wanted = [p for p in self.parameters() if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in wanted]
        flat = sum_over_ranks(torch.cat([g.flatten() for g in grads])) / world_size()
        for p, g in zip(wanted, flat.split([p.numel() for p in wanted]), strict=True):
            p.grad = g.view_as(p)

    def build(self, example: Any) -> None:
        """Run the model once in eval mode, without touching its state or the global random numbers, to build heads."""
        modes = {module: module.training for module in self._model.modules()}
        cuda = sorted({p.device.index for p in self._model.parameters() if p.device.type == "cuda"})
        try:
            for tap in self._taps:
                tap.building = True
            self._model.eval()
            with torch.no_grad(), torch.random.fork_rng(devices=cuda):
                _call(self._model, example)
        finally:
            for module, mode in modes.items():
                module.training = mode
            for tap in self._taps:
                tap.building = False
                tap.clear()
        missing = [tap.name for tap in self._taps if not tap.built]
        if missing and not self._allow_unused:
            raise RuntimeError(f"the example did not reach {', '.join(missing)}")

    def remove(self) -> None:
        """Take every trace off the model."""
        for handle in self._handles:
            handle.remove()
        for tap in self._taps:
            tap.clear()

    def moved(self, model: nn.Module) -> "Attachment":
        """The same on the blocks of these names in `model`, with the same heads.  Leaves this one removed."""
        self.remove()
        blocks = {tap.name: model.get_submodule(tap.name) for tap in self._taps}
        new = Attachment(model, blocks, self._loss, name=self.name, allow_unused=self._allow_unused)
        for tap, before in zip(new._taps, self._taps, strict=True):
            tap.head, tap.skipped = before.head, before.skipped
        return new

    def _count(self, model: nn.Module, _args: object) -> None:
        self._forwards += model.training and torch.is_grad_enabled()
        if self._forwards > MOST_FORWARDS:
            raise RuntimeError(
                f"{MOST_FORWARDS} forwards in training mode, and loss() of {self.name!r} was not called: their "
                "activations fill the memory. Call loss() in every step, clear() to drop them, or remove()."
            )


def _hook(tap: Tap, loss: BlockLoss | PerBlock, *, owner: str) -> list[RemovableHandle]:
    source = loss.source(tap.block) if isinstance(loss, PerBlock) else None
    if source is None:
        enter = Hook(lambda _block, args, kwargs: tap.enter(args, kwargs), owner=owner)
        entry = tap.block.register_forward_pre_hook(enter, with_kwargs=True)
    else:
        enter = Hook(lambda _child, _args, output: tap.enter(output), owner="")
        entry = tap.block.get_submodule(source).register_forward_hook(enter)
    leave = Hook(lambda _block, _args, output: tap.leave(output), owner=owner)
    return [entry, tap.block.register_forward_hook(leave)]


def _call(model: nn.Module, example: Any) -> None:
    if isinstance(example, tuple):
        model(*example)
    elif isinstance(example, Mapping):
        model(**example)
    else:
        model(example)
