"""A link compares each call of one block with the same call of another."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from reglet.attach.select import Where, in_order
from reglet.attach.tap import PerBlock, Tap, naming
from reglet.types import Scalar

Stop = Literal["to", "from"] | None


class Link:
    """The outputs of `source` and `target`, for a loss.  `collect` treats it like a `Tap`.

    stop: the side that gets no gradient.  The loss takes the side that learns as a block's output, and the stopped side
        as its input, which the head of SIM reconstructs.
    """

    def __init__(self, source: Tap, target: Tap, loss: PerBlock, *, stop: Stop, position: int) -> None:
        self.name = f"{source.name}->{target.name}"
        self.source, self.target, self.loss, self.stop, self.position = source, target, loss, stop, position
        self.head: nn.Module | None = None
        self.skipped = False

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    def learns(self) -> Tap:
        return self.target if self.stop == "from" else self.source

    @property
    def idle(self) -> set[str]:
        return self.learns.idle

    @property
    def ran(self) -> bool:
        return self.learns.ran

    @property
    def freed(self) -> list[bool]:
        """`freed` of the sides that get a gradient."""
        sides = [self.source, self.target] if self.stop is None else [self.learns]
        return [freed for side in sides for freed in side.freed]

    @property
    def built(self) -> bool:
        self.build()
        return self.skipped or self.head is not None

    def build(self) -> None:
        """Builds the head as soon as both places have been seen."""
        if self.head is None and not self.skipped and self.source.ran and self.target.ran:
            learns, fixed = self._sides(self.source.pairs[0], self.target.pairs[0])
            self.head = naming(self.name, self.loss.build, fixed.detach(), learns.detach(), position=self.position)
            self.skipped = self.head is None

    @property
    def pairs(self) -> list[Any]:
        """What the head takes, for every kept call."""
        seen, others = self.source.pairs, self.target.pairs
        if len(seen) != len(others):
            raise RuntimeError(
                f"{self.source.name!r} ran {len(seen)} times in training, and {self.target.name!r} {len(others)} "
                "times: their calls cannot be paired. Blocks in eval mode or under no_grad are not seen"
            )
        self.build()
        return [self._pair(*self._sides(a, b)) for a, b in zip(seen, others, strict=True)]

    def losses(self) -> list[Scalar]:
        raise TypeError("two places are compared by a loss that has heads")  # `collect` does not ask

    def clear(self) -> None:
        self.source.clear()
        self.target.clear()

    def _pair(self, learns: Tensor, fixed: Tensor) -> Any:
        head: Any = self.head
        return None if head is None else naming(self.name, lambda: head.after(head.before(fixed), learns))

    def _sides(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The side that learns, and the side it is compared with."""
        if self.stop == "from":
            return target, source.detach()
        return source, target.detach() if self.stop == "to" else target


def links(
    model: nn.Module, source: Where, other: nn.Module, target: Where, loss: PerBlock, *, stop: Stop
) -> tuple[list[Link], list[Tap], list[Tap]]:
    """The pairs of places, the taps of the model, and the taps of `other` if it is another network."""
    left, right = in_order(model, source), in_order(other, target)
    if len(right) == 1:
        right = right * len(left)
    elif len(left) == 1:
        left = left * len(right)
    if len(left) != len(right):
        raise ValueError(
            f"places are compared one by one, or all with one: got {len(left)} to compare ("
            f"{', '.join(name for name, _ in left)}) with {len(right)} ({', '.join(name for name, _ in right)})"
        )
    own: dict[nn.Module, Tap] = {}
    others: dict[nn.Module, Tap] = own if other is model else {}
    made = []
    for i, ((a, block), (b, end)) in enumerate(zip(left, right, strict=True)):
        if other is model and block is end:
            raise ValueError(f"block {a!r} would be compared with itself")
        x = own.setdefault(block, Tap(a, block, None, position=i))
        y = others.setdefault(end, Tap(b, end, None, position=i))
        made.append(Link(x, y, loss, stop=stop, position=i))
    return made, list(own.values()), [] if other is model else list(others.values())


def places(where: Where | Mapping[str, Where], to: Where | None) -> tuple[Where, Where | None]:
    """`where` and `to`, in whichever form they were given."""
    if not isinstance(where, Mapping):
        return where, to
    if set(where) != {"from", "to"} or to is not None:
        given = [*where, *([] if to is None else ["to="])]
        raise ValueError(f'two places are {{"from": ..., "to": ...}}, or where and to=; got {", ".join(given)}')
    return where["from"], where["to"]


def check_stop(stop: Stop, *, teacher: nn.Module | None) -> None:
    if stop not in ("to", "from", None):
        raise ValueError(f"stop is 'to', 'from' or None, got {stop!r}")
    if teacher is not None and stop != "to":
        raise ValueError(f"a teacher is frozen, so stop is 'to'; got {stop!r}")
