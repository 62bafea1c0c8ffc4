"""D4, the eight symmetries of the square.

g = R^k F^f        F mirrors left to right, then R^k turns by k quarters counter-clockwise, as torch.rot90
F R = R^-1 F,  so  (R^a F^s) (R^b F^t) = R^(a + (-1)^s b) F^(s + t)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from reglet.moves import moved


@dataclass(frozen=True, eq=False)
class D4:
    """n elements.  turn: k in 0..3.  flip: f.  They are always kept on the host.

    >>> g = D4(torch.tensor([1]), torch.tensor([True]))
    >>> (g @ g.inverse()).turn.item(), (g @ g).flip.item()
    (0, False)
    """

    turn: Int64[Tensor, " n"]
    flip: Bool[Tensor, " n"]
    _sent: dict[torch.device, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, dtype in (("turn", torch.int64), ("flip", torch.bool)):
            got = getattr(self, name)
            if not isinstance(got, Tensor) or got.dtype != dtype:
                raise TypeError(f"{name} must be a tensor of {dtype}, got {getattr(got, 'dtype', type(got).__name__)}")
        if self.turn.ndim != 1 or self.turn.shape != self.flip.shape:
            got = f"{tuple(self.turn.shape)} and {tuple(self.flip.shape)}"
            raise ValueError(f"one turn and one flip for each element, got shapes {got}")
        object.__setattr__(self, "turn", self.turn.cpu())
        object.__setattr__(self, "flip", self.flip.cpu())
        if bool(((self.turn < 0) | (self.turn > 3)).any()):
            raise ValueError(f"turns are 0 to 3 quarters, got {self.turn.tolist()}")

    def __len__(self) -> int:
        return len(self.turn)

    def __matmul__(self, first: "D4") -> "D4":
        """The product, element by element: `first` acts first, then this one."""
        if len(first) != len(self):
            raise ValueError(f"elements are composed one by one: {len(self)} and {len(first)} do not fit")
        turned = torch.where(self.flip, -first.turn, first.turn)
        return D4((self.turn + turned) % 4, self.flip ^ first.flip)

    def inverse(self) -> "D4":
        """R^-k for R^k.  R^k F is its own inverse."""
        return D4(torch.where(self.flip, self.turn, -self.turn) % 4, self.flip)

    @property
    def number(self) -> Int64[Tensor, " n"]:
        """k + 4 f: the place of each element in `D4.every()`."""
        return self.turn + 4 * self.flip

    def number_on(self, device: torch.device) -> Int64[Tensor, " n"]:
        """`number` on a device, where it is kept."""
        if device not in self._sent:
            send([self], device)
        return self._sent[device]

    @property
    def odd(self) -> bool:
        """Whether height and width change places.  All elements of a batch must agree on that."""
        odd = self.turn % 2 == 1
        if bool(odd.any()) and not bool(odd.all()):
            raise ValueError("some elements exchange height and width and some do not: that needs a square grid")
        return bool(odd.any())

    @staticmethod
    def identity(n: int) -> "D4":
        return D4(torch.zeros(n, dtype=torch.int64, device="cpu"), torch.zeros(n, dtype=torch.bool, device="cpu"))

    @staticmethod
    def every() -> "D4":
        """All eight elements."""
        e = torch.arange(8, device="cpu")
        return D4(e % 4, e >= 4)


def send(elements: Sequence[D4], device: torch.device) -> None:
    """Copy the numbers of several elements to `device` at once, before they are used there."""
    for element, number in zip(elements, moved([element.number for element in elements], device), strict=True):
        element._sent[device] = number
