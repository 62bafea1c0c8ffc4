"""What every view loss does before its maths: views in any usual form -> checked float32, of the whole batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.dist import gather
from reglet.types import Scalar, Terms, total

Views = Tensor | Sequence[Tensor]


class OnViews(nn.Module, ABC):
    """A loss on the embeddings of several views.  Calling it gives the scalar, `.terms` its weighted parts by name.

    Views come as `loss(z0, z1)`, as `loss(views)` with a (v, n, d) tensor or a list of (n, d) tensors, or as
    `loss(global_views=..., local_views=...)`; without local views, all views are global.

    gather: the loss of the whole batch over all ranks; its value and, under DDP's averaging, its parameter gradient
        equal those of one process.  Otherwise each rank has the loss of its own samples.
    check_finite: raise, naming the view, when an embedding is NaN or infinite.  Costs a device synchronisation.
    """

    least_views: ClassVar[int] = 2
    least_samples: ClassVar[int] = 2
    least_features: ClassVar[int] = 1

    def __init__(self, *, gather: bool = False, check_finite: bool = False) -> None:
        super().__init__()
        self.gather, self.check_finite = gather, check_finite

    def forward(self, *views: Views, global_views: Views | None = None, local_views: Views | None = None) -> Scalar:
        return total(self.terms(*views, global_views=global_views, local_views=local_views))

    def terms(self, *views: Views, global_views: Views | None = None, local_views: Views | None = None) -> Terms:
        z, n_global = self._collect(views, global_views, local_views)
        with torch.autocast(z[0].device.type, enabled=False):  # statistics of a batch want float32
            if z[0].dtype in (torch.float16, torch.bfloat16):
                z = z.float() if isinstance(z, Tensor) else [view.float() for view in z]
            if self.gather:
                z = gather(z if isinstance(z, Tensor) else torch.stack(z), dim=1)
            self._require_least(z)  # of the gathered batch: a rank may hold one sample, and all ranks must agree
            return self.compute(z, n_global) if isinstance(z, Tensor) else self.compute_separate(z, n_global)

    @abstractmethod
    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        """The maths.  The first `n_global` views are global, the others local."""

    def compute_separate(self, views: list[Float[Tensor, "n d"]], n_global: int) -> Terms:
        """The same, where views came one by one: a loss that takes them so need not copy them together."""
        return self.compute(torch.stack(views), n_global)

    def _collect(
        self, views: tuple[Views, ...], global_views: Views | None, local_views: Views | None
    ) -> tuple[Tensor | list[Tensor], int]:
        name = type(self).__name__
        if bool(views) == (global_views is not None) or (local_views is not None and global_views is None):
            raise TypeError(f"{name} takes views by position, or global_views= with or without local_views=")
        z = checked(name, *(views if global_views is None else (global_views,)))
        n_global = len(z)
        if local_views is not None:
            local = checked(name, local_views)
            if local[0].shape != z[0].shape:
                raise ValueError(
                    f"{name}: global and local views differ in (n, d): {tuple(z[0].shape)} and {tuple(local[0].shape)}"
                )
            z = [*z, *local]
        if self.check_finite:
            require_finite(z)
        return z, n_global

    def _require_least(self, z: Tensor | list[Tensor]) -> None:
        least, shape = (self.least_views, self.least_samples, self.least_features), (len(z), *z[0].shape)
        if any(got < wanted for got, wanted in zip(shape, least, strict=True)):
            raise ValueError(f"{type(self).__name__} needs (views, samples, features) of at least {least}, got {shape}")


def checked(name: str, *views: Views) -> Tensor | list[Tensor]:
    """(n, d) tensors one by one or in a sequence -> a list of them; or one tensor (v, n, d), as it is."""
    given = views[0] if len(views) == 1 and not isinstance(views[0], Tensor) else views
    allowed = (2, 3) if len(given) == 1 else (2,)
    every: list[Tensor] = []
    for i, z in enumerate(given):
        if not isinstance(z, Tensor) or z.ndim not in allowed:
            got = f"shape {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
            raise ValueError(f"{name} takes views of shape (n, d), or one tensor (v, n, d); got {got}")
        if not z.is_floating_point():
            raise TypeError(f"{name} takes floating-point embeddings, view {i} is {z.dtype}")
        every.append(z)
        if z.shape != every[0].shape:
            raise ValueError(f"{name}: view 0 has shape {tuple(every[0].shape)} and view {i} {tuple(z.shape)}")
    if not every or every[0].numel() == 0:
        raise ValueError(f"{name} got an empty tensor or no views at all")
    return every[0] if every[0].ndim == 3 else every


def require_finite(z: Iterable[Float[Tensor, "n d"]]) -> None:
    for i, view in enumerate(z):
        bad = ~torch.isfinite(view)
        if not bool(bad.any()):
            continue
        sample, feature = bad.nonzero()[0].tolist()
        raise FloatingPointError(
            f"view {i} has {int(bad.sum())} non-finite of {bad.numel()} values, "
            f"the first at sample {sample}, feature {feature}: {view[sample, feature].item()}"
        )


def pairs(v: int, n_global: int) -> Iterator[tuple[int, int]]:
    """The pairs of views that are compared: all that contain a global view, each once."""
    return ((i, j) for i in range(n_global) for j in range(i + 1, v))
