"""Several views of each image: two, or a few large and many small ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.views.crop import Crops, Side
from reglet.views.draw import Draw
from reglet.views.view import Run, View


@dataclass(frozen=True)
class Policy:
    """The first `n_global` views are global, the others local.  All global views have the same size.

    >>> two = Policy((View(32, flip=0.5), View(32, solarize=0.2)), n_global=2)
    >>> draws = two.draw(4, torch.Generator().manual_seed(0))
    >>> [tuple(x.shape) for x in two.apply(torch.rand(4, 3, 32, 32), draws)]
    [(4, 3, 32, 32), (4, 3, 32, 32)]
    """

    views: tuple[View, ...]
    n_global: int

    def __post_init__(self) -> None:
        if not 1 <= self.n_global <= len(self.views):
            raise ValueError(f"n_global must be from 1 to the number of views, {len(self.views)}; got {self.n_global}")
        sizes = sorted({view.size for view in self.views[: self.n_global]})
        if len(sizes) > 1:
            raise ValueError(f"global views have one size, got {sizes}")

    @property
    def size(self) -> int:
        """The side of the global views, in pixels."""
        return self.views[0].size

    def draw(
        self, n: int, generator: torch.Generator | None = None, *, aspect: Float[Tensor, " n"] | None = None
    ) -> list[Draw]:
        """aspect: width / height of each image; None: all are square."""
        return [view.draw(n, generator, aspect=aspect) for view in self.views]

    def apply(self, images: Tensor, draws: Sequence[Draw]) -> list[Tensor]:
        """The normalised float views of uint8 images, or of floating-point ones in [0, 1]."""
        self._one_draw_each(draws)
        return [view.apply(images, draw) for view, draw in zip(self.views, draws, strict=True)]

    # The same in two steps, for images of many sizes: the source crops while it decodes, and the device does the rest.

    @property
    def crops_whole_images(self) -> bool:
        """Whether every view can be made in these two steps."""
        return all(view.crops_whole_images for view in self.views)

    def crops(self, draws: Sequence[Draw], *, height: Side, width: Side) -> list[Crops]:
        """The crops that the source should make for each view."""
        self._one_draw_each(draws)
        return [view.crops(draw, height=height, width=width) for view, draw in zip(self.views, draws, strict=True)]

    def finish(self, crops: Sequence[Tensor], draws: Sequence[Draw], *, run: Run = map) -> list[Tensor]:
        """The views, from crops (n, c, size, size) that the source made.  run: see `View.finish`."""
        self._one_draw_each(draws)
        return [view.finish(x, draw, run=run) for view, x, draw in zip(self.views, crops, draws, strict=True)]

    def _one_draw_each(self, draws: Sequence[Draw]) -> None:
        if len(draws) != len(self.views):
            raise ValueError(f"one draw for each of the {len(self.views)} views, got {len(draws)}")


@dataclass(frozen=True)
class PolicyWrapper:
    """Another policy's views.  A subclass draws differently."""

    policy: Policy

    @property
    def n_global(self) -> int:
        return self.policy.n_global

    @property
    def size(self) -> int:
        return self.policy.size

    def apply(self, images: Tensor, draws: Sequence[Draw]) -> list[Tensor]:
        return self.policy.apply(images, draws)

    @property
    def crops_whole_images(self) -> bool:
        return self.policy.crops_whole_images

    def crops(self, draws: Sequence[Draw], *, height: Side, width: Side) -> list[Crops]:
        return self.policy.crops(draws, height=height, width=width)

    def finish(self, crops: Sequence[Tensor], draws: Sequence[Draw], *, run: Run = map) -> list[Tensor]:
        return self.policy.finish(crops, draws, run=run)
