"""`attach`: a loss on the hidden blocks of any network, by name, without touching the network."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from reglet.attach.average import AveragedGradients
from reglet.attach.features import On, OnFeatures, Regularizer
from reglet.attach.hooks import Hook, owners, refuse_compiled
from reglet.attach.select import Where, matching
from reglet.attach.tap import PerBlock, Tap, collect
from reglet.attach.tokens import Layout
from reglet.types import BlockLoss, Scalar, Terms, total

MOST_FORWARDS = 64  # of the model between two calls of loss(): then somebody forgot it, and memory is filling up


def attach(
    model: nn.Module,
    where: Where,
    loss: BlockLoss | PerBlock | Regularizer,
    *,
    on: On | None = None,
    rho: int | float = 1.0,
    layout: Layout | None = None,
    name: str | None = None,
    example: Any = None,
    allow_unused: bool = False,
) -> "Attachment":
    """Watch the blocks `where` (name, glob, list, class, predicate) and put `loss` on the input and output of each, or,
    with `on`, on the features of the output.

        sim = reglet.attach(model, "layer*.*", reglet.SIM(), example=x)
        optimizer = SGD([*model.parameters(), *sim.parameters()], lr=0.1)
        loss = criterion(model(x), y) + 5e-3 * sim.loss()
        sim.remove()

        weak = reglet.attach(model, "blocks.*", reglet.SIGReg(), on="tokens", rho=0.2, layout=Layout(skip_tokens=1))

    on, rho, layout: for a regularizer of features (n, d), such as VISReg, SIGReg or SWD: see `OnFeatures`.
    name: a block takes several attachments if their names differ; the class of the loss if not given.
    example: a batch (tensor, tuple of arguments or dict of them) that is run once in eval mode, so that the heads exist
        when this returns.  Otherwise they appear in the first forward in training mode.
    allow_unused: blocks that did not run (LayerDrop) are left out of the loss, instead of an error.

    A deep copy or pickle of the model is free of the attachment.  Attach before `torch.compile`.
    """
    refuse_compiled(model)
    name = type(loss).__name__ if name is None else name
    if on is not None:
        loss = OnFeatures(loss, on=on, rho=rho, layout=layout)  # type: ignore[arg-type]
    elif getattr(loss, "least_views", 2) == 1:  # it would take a block's input and output for two views
        raise ValueError(f"{name} regularizes features of one place: say on='tokens', 'pooled' or 'class'")
    elif rho != 1.0 or layout is not None:
        raise ValueError("rho= and layout= go with on=; a block loss has its own")
    blocks = matching(model, where)
    for path, block in blocks.items():
        if name in owners(block):
            raise ValueError(
                f"block {path!r} already has an attachment named {name!r}: remove() that one, or give this one a name="
            )
    attachment = Attachment(model, blocks, loss, name=name, allow_unused=allow_unused)  # type: ignore[arg-type]
    if example is not None:
        try:
            attachment.build(example)
        except BaseException:
            attachment.remove()
            raise
    return attachment


class Attachment(nn.Module):
    """A block loss on the blocks of one model.  Made by `attach`.

    A module that holds what is trained besides the model: its `state_dict` is what a run saves beside the model's, and
    `.to(device)` moves it.  Neither the model nor its state_dict knows of it.  Where a module that you train
    (a LightningModule, say) has it as a child, its parameters are among that module's.

    heads: by block name, with / for `.`
    averaging: on several ranks, average the gradients of the heads after every backward, as DDP does for the model.
        Switch it off where DDP has this module inside; it is then done twice, which changes nothing and takes longer.

    A copy of it is attached to a copy of the model: `deepcopy` of a module that has both copies both.
    """

    _model: nn.Module
    heads: nn.ModuleDict

    def __init__(
        self,
        model: nn.Module,
        blocks: Mapping[str, nn.Module],
        loss: BlockLoss | PerBlock,
        *,
        name: str,
        allow_unused: bool,
    ) -> None:
        super().__init__()
        self.heads = nn.ModuleDict()
        self.criterion = loss  # registered if it is a module
        self.name, self.averaging = name, True
        self._allow_unused = allow_unused
        self._taps = [Tap(path, block, loss, position=i) for i, (path, block) in enumerate(blocks.items())]
        object.__setattr__(self, "_model", model)  # not a child: it would be saved, moved and trained with this one
        self._average = AveragedGradients()
        self._hook()

    @property
    def blocks(self) -> list[str]:
        """Names of the blocks that count in the loss."""
        return [tap.name for tap in self._taps if not tap.skipped]

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """The parameters of the heads, for the optimizer."""
        self._require_heads()
        return super().parameters(recurse)

    def loss(self) -> Scalar:
        """The loss of all training forwards since the last call, averaged over the calls of a block, then over blocks
        (or summed, if the loss says so).  Zero if they all were in eval mode, or if gradients are off here and there.
        """
        terms = self.terms()
        return total(terms) if terms else torch.zeros((), device=self._taps[0].device)

    def terms(self) -> Terms:
        """What every block contributes to `loss()`, by name.  Like `loss()`, it starts anew."""
        self._adopt_heads()
        self._average.watch(super().parameters(), on=self.averaging)
        try:
            reduction = self.criterion.reduction if isinstance(self.criterion, PerBlock) else "mean"
            return collect(self._taps, reduction=reduction, allow_unused=self._allow_unused)
        finally:
            self.clear()

    def clear(self) -> None:
        """Forget what was seen since the last `loss()`."""
        self._forwards = 0
        for tap in self._taps:
            tap.clear()
        if isinstance(self.criterion, PerBlock):
            self.criterion.advance()

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
        self._adopt_heads()

    def remove(self) -> None:
        """Take every trace off the model."""
        for handle in self._handles:
            handle.remove()
        for tap in self._taps:
            tap.clear()

    def __getstate__(self) -> dict[str, Any]:
        removed = not any(handle.id in (handle.hooks_dict_ref() or {}) for handle in self._handles)
        return {**self.__dict__, "_removed": removed, "_average": AveragedGradients()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Hooks do not survive deepcopy and pickle, on purpose: a copy of the model alone is free of them.
        removed = state.pop("_removed")
        super().__setstate__(state)
        for handle in self._handles:  # of the copied hooks, which do nothing
            handle.remove()
        if not removed:
            self._hook()

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        if any(key.startswith(f"{prefix}heads.") for key in state):
            self._require_heads()
        super()._load_from_state_dict(state, prefix, *rest)

    def _hook(self) -> None:
        self._forwards = 0
        self._handles: list[RemovableHandle] = []
        if "_forward_pre_hooks" in vars(self._model):  # a copy in the making, of a model that has this inside, has none
            self._handles.append(self._model.register_forward_pre_hook(Hook(self._count, owner="")))
        for tap in self._taps:
            self._handles += _hook(tap, owner=self.name)

    def _adopt_heads(self) -> None:
        """The heads that blocks built since the last time become children.  A plain loss is one already."""
        if isinstance(self.criterion, PerBlock) and len(self.heads) < len(self._taps):
            self.heads.update({_key(tap.name): tap.head for tap in self._taps if tap.head is not None})

    def _require_heads(self) -> None:
        self._adopt_heads()
        waiting = [tap.name for tap in self._taps if not tap.built]
        if waiting:
            raise RuntimeError(
                f"the heads of {', '.join(waiting)} do not exist yet: they are built in the first forward in training "
                "mode. Give attach(..., example=x) to build them at once."
            )

    def _count(self, model: nn.Module, _args: object) -> None:
        self._forwards += model.training and torch.is_grad_enabled()
        if self._forwards > MOST_FORWARDS:
            raise RuntimeError(
                f"{MOST_FORWARDS} forwards in training mode, and loss() of {self.name!r} was not called: their "
                "activations fill the memory. Call loss() in every step, clear() to drop them, or remove()."
            )


def _hook(tap: Tap, *, owner: str) -> list[RemovableHandle]:
    source = tap.loss.source(tap.block) if isinstance(tap.loss, PerBlock) else None
    if source is None:
        enter = Hook(lambda _block, args, kwargs: tap.enter(args, kwargs), owner=owner)
        entry = tap.block.register_forward_pre_hook(enter, with_kwargs=True)
    else:
        enter = Hook(lambda _child, _args, output: tap.enter(output), owner="")
        entry = tap.block.get_submodule(source).register_forward_hook(enter)
    leave = Hook(lambda _block, _args, output: tap.leave(output), owner=owner)
    return [entry, tap.block.register_forward_hook(leave)]


def _key(block: str) -> str:
    return block.replace(".", "/") or "model"


def _call(model: nn.Module, example: Any) -> None:
    if isinstance(example, tuple):
        model(*example)
    elif isinstance(example, Mapping):
        model(**example)
    else:
        model(example)
