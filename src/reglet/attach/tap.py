"""A tap follows the calls of one block and keeps what the loss needs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from reglet.attach.hooks import recomputing
from reglet.attach.tensors import first_tensor
from reglet.types import BlockLoss, Scalar, WrongKindError


@runtime_checkable
class PerBlock(Protocol):
    """A block loss that has a module for every block, as SIM has heads.

    `build` makes the module of one block from its first input and output, or returns None to leave that block out.  The
    module has three methods.  `before(x)` is called before the block runs and takes what it needs from the input, which
    the block may overwrite.  `after(taken, y)` takes what it needs from the output.  `forward(pair)` is the scalar.
    `losses`, called by `loss()`, gives the scalars of many calls.  `source` may name a child of the block whose output
    is used as the block's input.  `advance` is called once after every `loss()`.

    >>> from reglet.blocks import SIM
    >>> isinstance(SIM(), PerBlock)
    True
    """

    reduction: str

    def source(self, block: nn.Module) -> str | None: ...

    def build(self, x: Tensor, y: Tensor, *, position: int) -> nn.Module | None: ...

    def losses(self, heads: Sequence[Any], pairs: Sequence[Any]) -> list[Scalar]: ...

    def advance(self) -> None: ...


class Whole(nn.Module):
    """A plain block loss.  It sees the whole input and output of a block, by reference."""

    def __init__(self, loss: BlockLoss) -> None:
        super().__init__()
        self.loss = loss

    def before(self, x: Tensor) -> tuple[Tensor, int]:
        return x, x._version

    def after(self, taken: tuple[Tensor, int], y: Tensor) -> tuple[Tensor, int, Tensor, int]:
        return *taken, y, y._version

    def forward(self, pair: tuple[Tensor, int, Tensor, int]) -> Scalar:
        x, x_version, y, y_version = pair
        if x._version != x_version or y._version != y_version:
            which = "input" if x._version != x_version else "output"
            raise RuntimeError(
                f"the {which} was modified in place after this block saw it, so its value is lost. "
                "Make that operation (often ReLU(inplace=True)) out of place, or attach one level further out."
            )
        return self.loss(x, y)


class Output(nn.Module):
    """A copy of a block's output, because the network may overwrite it."""

    def before(self, x: Tensor) -> None:
        return None

    def after(self, _taken: None, y: Tensor) -> Tensor:
        return y.clone()


class Tap:
    """Follows the calls of one block.  In training it keeps a pair for each call; in eval and under no_grad nothing.

    loss: None keeps only the outputs, for a loss that compares them with those of another block.
    """

    def __init__(self, name: str, block: nn.Module, loss: BlockLoss | PerBlock | None, *, position: int) -> None:
        self.name, self.block, self.loss, self.position = name, block, loss, position
        self.output_only = loss is None or getattr(loss, "output_only", False)
        self.head: nn.Module | None = None
        if not isinstance(loss, PerBlock):
            self.head = Output() if loss is None else Whole(loss)
        self.skipped = False
        self.building = False  # follow also in eval mode and without gradients
        self.told = False  # follow only while `building`: a block of a teacher
        self.device = torch.device("cpu")
        self.clear()

    def clear(self) -> None:
        self.entered: list[Any] = []  # a stack: a block may call itself
        self.pairs: list[Any] = []
        self.idle: set[str] = set()  # why calls were not kept: "eval", "no_grad"
        self.freed: list[bool] = []  # not empty once a backward pass has freed the graph of an output

    @property
    def built(self) -> bool:
        return self.skipped or self.head is not None

    @property
    def ran(self) -> bool:
        """Whether a call was kept."""
        return bool(self.pairs)

    def enter(self, *inputs: object) -> None:
        if not self._following():
            return
        x = self._tensor(inputs, "input")
        self.entered.append(x.detach().clone() if self.head is None else self._named(self.head.before, x))

    def leave(self, output: object) -> None:
        if not self._following():
            if not self.skipped and not recomputing():
                self.idle.add("no_grad" if self.block.training else "eval")
                y = first_tensor(output)
                self.device = self.device if y is None else y.device
            return
        if not self.entered and not self.output_only:
            raise RuntimeError(f"block {self.name!r} returned without its input having been seen")
        y, taken = self._tensor(output, "output"), None if self.output_only else self.entered.pop()
        self.device = y.device
        if self.head is None and isinstance(self.loss, PerBlock):
            self.head = self._named(self.loss.build, taken, y.detach(), position=self.position)
            self.skipped = self.head is None
            taken = None if self.head is None or self.output_only else self._named(self.head.before, taken)
        if self.head is not None:
            if y.requires_grad and not torch.compiler.is_compiling():
                y.register_hook(partial(_note_freed, self.freed))
            self.pairs.append(self._named(self.head.after, taken, y))

    def losses(self) -> list[Scalar]:
        """The losses of the kept calls, for a loss without heads."""
        found = []
        while self.pairs:  # each pair is freed as soon as it is used
            found.append(self._named(self.head, self.pairs.pop()))
        return found

    def __getstate__(self) -> dict[str, Any]:  # a copy or pickle takes no tensors along
        return {**self.__dict__, "entered": [], "pairs": [], "idle": set(), "freed": []}

    def _following(self) -> bool:
        if self.skipped or recomputing():
            return False
        return self.building or (not self.told and self.block.training and torch.is_grad_enabled())

    def _tensor(self, value: object, which: str) -> Tensor:
        tensor = first_tensor(value)
        if tensor is None:
            kind = type(value).__name__
            raise WrongKindError(
                f"block {self.name!r}: its {which} (a {kind}) has no floating-point tensor, and one is needed"
            )
        return tensor

    def _named(self, call: Any, *args: Any, **options: Any) -> Any:
        return naming(self.name, call, *args, **options)


def naming(block: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """`call(...)`, with the name of the block in its errors."""
    try:
        return call(*args, **options)
    except (ValueError, RuntimeError) as error:
        if type(error) not in (ValueError, RuntimeError):  # other classes may take other arguments
            raise
        raise type(error)(f"block {block!r}: {error}") from error


def _note_freed(freed: list[bool], _gradient: Tensor) -> None:
    if not torch._C._autograd._get_current_graph_task_keep_graph():
        freed.append(True)
