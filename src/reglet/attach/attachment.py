"""`attach`: a loss on the hidden blocks of any network, by name, without touching the network."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from reglet.attach.average import AveragedGradients
from reglet.attach.collect import collect
from reglet.attach.compare import Projector, of_two_places
from reglet.attach.features import On, Regularizer, of_one_place
from reglet.attach.hooks import Hook, owners, recomputing, refuse_compiled
from reglet.attach.link import Link, Stop, check_stop, links, places
from reglet.attach.select import Where, matching
from reglet.attach.tap import PerBlock, Tap
from reglet.attach.teacher import FrozenTeacher
from reglet.attach.tokens import Layout
from reglet.types import BlockLoss, Scalar, Terms, total

MOST_FORWARDS = 64  # of the model without a call of loss(): somebody forgot it, and memory fills up


def attach(
    model: nn.Module,
    where: Where | Mapping[str, Where],
    loss: BlockLoss | PerBlock | Regularizer,
    *,
    to: Where | None = None,
    teacher: nn.Module | None = None,
    inputs: str = "",
    stop: Stop = "to",
    projector: Projector = "auto",
    on: On | None = None,
    rho: int | float = 1.0,
    layout: Layout | tuple[Layout, Layout] | None = None,
    name: str | None = None,
    example: Any = None,
    allow_unused: bool = False,
) -> "Attachment":
    """Put `loss` on the blocks `where` (name, glob, list, class, predicate).  The loss sees the input and output of
    each block; with `on`, the features of its output; with `to`, the outputs of two blocks.

        sim = reglet.attach(model, "layer*.*", reglet.SIM(), example=x)
        optimizer = SGD([*model.parameters(), *sim.parameters()], lr=0.1)
        loss = criterion(model(x), y) + 5e-3 * sim.loss()
        sim.remove()

        weak = reglet.attach(model, "blocks.*", reglet.SIGReg(), on="tokens", rho=0.2, layout=Layout(skip_tokens=1))
        sync = reglet.attach(model, {"from": "blocks.3", "to": "blocks.9"}, reglet.Cosine())
        repa = reglet.attach(model, "blocks.6", reglet.Cosine(), teacher=net, to="blocks.11", example=x)

    on, rho, layout: for a regularizer of features (n, d), such as VISReg, SIGReg or SWD, see `OnFeatures`; for two
        places, see `Compare`.  A pair of layouts is for `where` and for `to`.
    to: the blocks to compare those of `where` with, one by one or all with one.
    teacher: the network that has the blocks `to`.  It runs once for each training forward, with the arguments of the
        model, in eval mode and without gradients.  It is not trained or saved here.  `.to(device)` moves it too.
    inputs: the part of the model whose arguments the teacher gets; by default the model itself.
    stop: the side that gets no gradient, "to" or "from"; None: both sides get one.  SIM reconstructs the stopped side
        from the other.
    projector: of the side that learns: "auto", "none", "linear" or "mlp".
    name: by default the class of the loss.  A block takes several attachments if their names differ.
    example: a batch (tensor, tuple of arguments or dict of them).  It is run once in eval mode to build the heads.
        Otherwise they are built in the first forward in training mode.
    allow_unused: blocks that did not run (LayerDrop) are left out of the loss; otherwise they are an error.

    A deep copy or pickle of the model is free of the attachment.  Attach before `torch.compile`.

    >>> from reglet import SIM
    >>> net, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), torch.randn(4, 3, 12, 12)
    >>> sim = attach(net, "2", SIM(), example=x)
    >>> (net(x).mean() + 5e-3 * sim.loss()).backward()
    >>> sim.remove()
    """
    refuse_compiled(model)
    name = type(loss).__name__ if name is None else name
    where, to = places(where, to)
    taught: list[Tap] = []
    if to is None:
        if teacher is not None or inputs or stop != "to" or projector != "auto":
            raise ValueError("teacher=, inputs=, stop= and projector= go with to=, the place to compare with")
        loss = of_one_place(loss, name, on=on, rho=rho, layout=layout)
        taps = [Tap(path, block, loss, position=i) for i, (path, block) in enumerate(matching(model, where).items())]
        units: Sequence[Tap] | Sequence[Link] = taps
    else:
        if teacher is not None:
            refuse_compiled(teacher)
        check_stop(stop, teacher=teacher)
        loss = of_two_places(loss, name, on=on, rho=rho, layout=layout, stop=stop, projector=projector)
        units, taps, taught = links(model, where, teacher or model, to, loss, stop=stop)
    for tap in taps:
        if name in owners(tap.block):
            raise ValueError(
                f"block {tap.name!r} already has an attachment named {name!r}: remove() that one, or give this one a "
                "name="
            )
    frozen = None if teacher is None else FrozenTeacher(teacher, taught)
    fed = matching(model, inputs)[inputs] if frozen is not None else model
    attachment = Attachment(model, units, taps, loss, name=name, allow_unused=allow_unused, teacher=frozen, fed=fed)
    if example is not None:
        try:
            attachment.build(example)
        except BaseException:
            attachment.remove()
            raise
    return attachment


class Attachment(nn.Module):
    """A loss on the blocks of one model.  Made by `attach`.

    It is a module that holds the heads, which are trained besides the model.  A run saves its `state_dict` beside the
    model's, and `.to(device)` moves it.  The model and its state_dict do not contain it.  If a module that you train,
    such as a LightningModule, has it as a child, its parameters are among that module's.

    heads: by block name, with / for `.`
    averaging: on several ranks, average the gradients of the heads after every backward, as DDP does for the model.
        Switch it off if DDP wraps this module too: averaging twice changes nothing and takes longer.

    `deepcopy` of a module that has both the model and this copies both, and attaches the copies to each other.

    >>> from reglet import SIM
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    >>> sim = attach(net, "2", SIM())
    >>> out = net(torch.randn(4, 3, 12, 12))
    >>> sim.blocks, list(sim.terms())
    (['2'], ['2'])
    """

    _model: nn.Module
    _fed: nn.Module
    heads: nn.ModuleDict

    def __init__(
        self,
        model: nn.Module,
        units: Sequence[Tap] | Sequence[Link],
        taps: Sequence[Tap],
        loss: BlockLoss | PerBlock,
        *,
        name: str,
        allow_unused: bool,
        teacher: FrozenTeacher | None = None,
        fed: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.heads = nn.ModuleDict()
        self.criterion = loss  # registered if it is a module
        self.name, self.averaging = name, True
        self._allow_unused = allow_unused
        self._units, self._taps, self._teacher = units, taps, teacher
        # Not children: they would be saved, moved and trained with this one.
        object.__setattr__(self, "_model", model)
        object.__setattr__(self, "_fed", model if fed is None else fed)
        self._average = AveragedGradients()
        self._hook()

    @property
    def blocks(self) -> list[str]:
        """The names of the blocks in the loss; for two places, "from->to"."""
        return [unit.name for unit in self._units if not unit.skipped]

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """The parameters of the heads, for the optimizer."""
        self._require_heads()
        return super().parameters(recurse)

    def loss(self) -> Scalar:
        """The loss of all training forwards since the last call: the mean over the calls of a block, then the mean over
        blocks (or their sum, if the loss says so).  Zero if all forwards were in eval mode, or if gradients were off
        then and are off now.
        """
        terms = self.terms()
        return total(terms) if terms else torch.zeros((), device=self._units[0].device)

    def terms(self) -> Terms:
        """The part of `loss()` that each block has, by name.  Like `loss()`, it clears what was seen."""
        self._adopt_heads()
        self._average.watch(super().parameters(), on=self.averaging)
        try:
            reduction = self.criterion.reduction if isinstance(self.criterion, PerBlock) else "mean"
            return collect(self._units, reduction=reduction, allow_unused=self._allow_unused)
        finally:
            self.clear()

    def clear(self) -> None:
        """Forget what was seen since the last `loss()`."""
        self._forwards = 0
        for tap in self._every_tap:
            tap.clear()
        if isinstance(self.criterion, PerBlock):
            self.criterion.advance()

    def build(self, example: Any) -> None:
        """Run the model once in eval mode to build the heads.  Its state and global random numbers do not change."""
        modes = {module: module.training for module in self._model.modules()}
        cuda = sorted({p.device.index for p in self._model.parameters() if p.device.type == "cuda"})
        try:
            for tap in self._taps:
                tap.building = True
            self._building = True
            self._model.eval()
            with torch.no_grad(), torch.random.fork_rng(devices=cuda):
                _call(self._model, example)
            missing = [unit.name for unit in self._units if not unit.built]
        finally:
            self._building = False
            for module, mode in modes.items():
                module.training = mode
            for tap in self._taps:
                tap.building = False
            for tap in self._every_tap:
                tap.clear()
        if missing and not self._allow_unused:
            raise RuntimeError(f"the example did not reach {', '.join(missing)}")
        self._adopt_heads()

    def remove(self) -> None:
        """Remove every trace from the model and from the teacher."""
        for handle in self._handles:
            handle.remove()
        for tap in self._every_tap:
            tap.clear()

    @property
    def _every_tap(self) -> list[Tap]:
        return [*self._taps, *([] if self._teacher is None else self._teacher.taps)]

    def _apply(self, fn: Any, recurse: bool = True) -> "Attachment":
        super()._apply(fn, recurse)
        if self._teacher is not None:  # it must be on the model's device
            self._teacher.network._apply(fn)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Attachment":
        """A frozen teacher is shared by the copies."""
        if self._teacher is not None:
            own = set(self._model.modules())
            memo.update({id(m): m for m in self._teacher.network.modules() if m not in own})
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(deepcopy(self.__getstate__(), memo))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        removed = not any(handle.id in (handle.hooks_dict_ref() or {}) for handle in self._handles)
        return {**self.__dict__, "_removed": removed, "_average": AveragedGradients()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Hooks do not survive deepcopy and pickle, so that a copy of the model alone has none.
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
        self._building = False
        self._handles: list[RemovableHandle] = []
        if "_forward_pre_hooks" in vars(self._model):  # missing while a model that contains this is being copied
            self._handles.append(self._model.register_forward_pre_hook(Hook(self._count, owner="")))
        for tap in self._every_tap:
            self._handles += _hook(tap, owner=self.name)
        if self._teacher is not None:
            if "_forward_pre_hooks" not in vars(self._fed):
                raise RuntimeError(
                    "a copy of a model that has its attachment inside cannot run the teacher. Keep the attachment "
                    "beside the model, in a module that has both"
                )
            teach = Hook(self._teach, owner="")
            self._handles.append(self._fed.register_forward_pre_hook(teach, with_kwargs=True))

    def _adopt_heads(self) -> None:
        """Makes newly built heads children of this module.  A plain loss is a child already."""
        if isinstance(self.criterion, PerBlock) and len(self.heads) < len(self._units):
            for unit in self._units:
                if unit.built and unit.head is not None:
                    self.heads[_key(unit.name)] = unit.head

    def _require_heads(self) -> None:
        self._adopt_heads()
        waiting = [unit.name for unit in self._units if not unit.built]
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

    def _teach(self, fed: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._teacher is None or recomputing():
            return
        if self._building or (fed.training and torch.is_grad_enabled()):
            self._teacher(*args, **kwargs)


def _hook(tap: Tap, *, owner: str) -> list[RemovableHandle]:
    leave = Hook(lambda _block, _args, output: tap.leave(output), owner=owner)
    if tap.output_only:
        return [tap.block.register_forward_hook(leave)]
    source = tap.loss.source(tap.block) if isinstance(tap.loss, PerBlock) else None
    if source is None:
        enter = Hook(lambda _block, args, kwargs: tap.enter(args, kwargs), owner=owner)
        entry = tap.block.register_forward_pre_hook(enter, with_kwargs=True)
    else:
        enter = Hook(lambda _child, _args, output: tap.enter(output), owner="")
        entry = tap.block.get_submodule(source).register_forward_hook(enter)
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
