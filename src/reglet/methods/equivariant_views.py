"""Views for SER.  For some images, both views of a pair show the same crop.  They then differ only in colours and in a
known transform.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import world_size
from reglet.views import Draw, share_geometry
from reglet.views.multiview import PolicyWrapper

GEOMETRY = ("crop", "flip", "angle", "turn")


def part_of(n: int, fraction: float) -> int:
    """How many of a rank's n images, the last ones, have aligned views: round(fraction n).

    >>> [part_of(256, r) for r in (0.0, 0.005, 0.01, 0.02)]
    [0, 1, 3, 5]
    """
    return round(fraction * n)


@dataclass(frozen=True)
class AlignedViews(PolicyWrapper):
    """`policy`, except that views 0 and 1, 2 and 3, ... of the last images of each rank are aligned.

        policy = AlignedViews(reglet.views.policy("ser", size=224), fraction=0.01)

    fraction: r, the same as in `Equivariant`.
    crop: "shared" takes the crop, flip and rotation of the first view of a pair, as the authors' code does; "none"
        takes the whole image, as the paper says.
    ranks: the number of parts into which the drawn batch will be cut.  None: the number of ranks, because reglet's
        trainer draws for all ranks at once.  Give 1 in a loop that draws for each rank separately.

    >>> from reglet.views import policy
    >>> aligned = AlignedViews(policy("ser", size=32), fraction=0.5)
    >>> first, second = aligned.draw(8)[:2]
    >>> torch.equal(first.flip[4:], second.flip[4:])
    True
    """

    fraction: float
    crop: Literal["shared", "none"] = "shared"
    ranks: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.fraction < 1:
            raise ValueError(f"fraction is a part of the batch, from 0 to below 1, got {self.fraction}")
        require_one_of("crop", self.crop, ("shared", "none"))
        sizes = [view.size for view in self.policy.views]
        if sizes[::2] != sizes[1::2]:
            raise ValueError(f"views 0 and 1, 2 and 3, ... are pairs of one size, got views of {sizes} px")

    def draw(
        self, n: int, generator: torch.Generator | None = None, *, aspect: Float[Tensor, " n"] | None = None
    ) -> list[Draw]:
        draws = self.policy.draw(n, generator, aspect=aspect)
        rows = self._aligned(n)
        return [d for i in range(0, len(draws), 2) for d in self._pair(draws[i : i + 2], rows)]

    def _aligned(self, n: int) -> Tensor:
        """Whether each of n images is among the last images of its rank."""
        ranks = world_size() if self.ranks is None else self.ranks
        if n % ranks:
            raise ValueError(f"a batch of {n} cannot be cut into {ranks} equal parts")
        each = n // ranks
        return torch.arange(n) % each >= each - part_of(each, self.fraction)

    def _pair(self, draws: Sequence[Draw], rows: Tensor) -> list[Draw]:
        given = share_geometry(draws) if self.crop == "shared" else [_whole(d) for d in draws]
        return [_where(rows, new, old) for new, old in zip(given, draws, strict=True)]


def require_aligned(draws: Sequence[Draw], *, last: int) -> None:
    """Raise unless the last images have the same geometry in views 0 and 1, 2 and 3, ..."""
    if len(draws) < 2 or len(draws) % 2:
        raise ValueError(f"views 0 and 1, 2 and 3, ... are pairs: their number is even, got {len(draws)}")
    for i in range(0, len(draws), 2):
        for name in GEOMETRY:
            one, other = (getattr(d, name)[-last:] for d in draws[i : i + 2])
            if not torch.equal(one, other):
                raise ValueError(
                    f"of the last {last} images views {i} and {i + 1} should differ in colours only, but their {name} "
                    "differs. Make views by AlignedViews(policy, fraction=...) with the fraction of Equivariant."
                )


def require_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is one of {', '.join(map(repr, known))}, got {value!r}")


def _whole(draw: Draw) -> Draw:
    """No crop, flip or rotation: the whole image, or the middle of a padded one."""
    crop = torch.tensor([0.4999, 0.4999, 1.0, 1.0]).expand(len(draw), 4)
    zero = torch.zeros(len(draw))
    return replace(draw, crop=crop, flip=zero.bool(), angle=zero, turn=zero.long())


def _where(rows: Tensor, new: Draw, old: Draw) -> Draw:
    values = {}
    for field in fields(old):
        a, b = getattr(new, field.name), getattr(old, field.name)
        values[field.name] = torch.where(rows if a.ndim == 1 else rows[:, None], a, b)
    return Draw(**values)
