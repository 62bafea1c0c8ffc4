"""What every view loss does before its maths: it takes views in any usual form, checks them, and gathers the ranks."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.check import no_overflow
from reglet.dist import Group, Ranks, agree, concat_over_ranks
from reglet.precision import FullBackward, at_least_float32, no_autocast, of_one_dtype
from reglet.schedules import Scheduled, Share
from reglet.shares import keep_shares
from reglet.types import INVARIANCE, Scalar, Terms, total

Views = Tensor | Sequence[Tensor]


class OnViews(Scheduled, nn.Module):
    """A loss on the embeddings of several views.  Calling it gives the scalar, `.terms` its weighted parts by name.

    Views come as `loss(z0, z1)`, as `loss(views)` with a (v, n, d) tensor or a list of (n, d) tensors, or as
    `loss(global_views=..., local_views=...)`; without local views, all views are global.

    A loss has its maths in `compute`, for the whole batch, or in `compute_on_ranks`, where each rank does a part.

    gather: take the loss of the whole batch over all ranks.  Its value equals that of one process, and under DDP's
        averaging so does its parameter gradient.  Otherwise each rank has the loss of its own samples.
    group: the process group whose samples are gathered; all ranks if not given.
    check_finite: raise, naming the view, when an embedding is NaN or infinite.  Costs a device synchronisation.
    """

    least_views: int = 2
    least_samples: ClassVar[int] = 2
    least_features: ClassVar[int] = 1
    weighs: ClassVar[Mapping[str, str]] = {}  # weight -> the term it multiplies, where `governed` would guess wrong

    def __init__(self, *, gather: bool = False, group: Group = None, check_finite: bool = False) -> None:
        super().__init__()
        if group is not None and not gather:
            raise ValueError("group says whose samples are gathered, and needs gather=True")
        self.gather, self.group, self.check_finite = gather, group, check_finite

    def forward(self, *views: Views, global_views: Views | None = None, local_views: Views | None = None) -> Scalar:
        return total(self.terms(*views, global_views=global_views, local_views=local_views))

    def terms(self, *views: Views, global_views: Views | None = None, local_views: Views | None = None) -> Terms:
        try:
            z, n_global = self._collect(views, global_views, local_views)
        except (ValueError, TypeError, FloatingPointError) as error:
            if self.gather:
                agree(error, group=self.group)  # raises on every rank
            raise
        outside = FullBackward.if_needed()
        with no_autocast(z[0]):
            z = at_least_float32(z) if isinstance(z, Tensor) else of_one_dtype(z)
            ranks = self._ranks(z)
            self._require_least(z, ranks)  # of the whole batch: a rank may hold one sample, and all ranks must agree
            if outside is not None:
                z = outside.enter(z)[0] if isinstance(z, Tensor) else list(outside.enter(*z))
            shares = self.shares()
            compute = self._with_shares if shares else self.compute_on_ranks
            terms = compute(z, n_global, ranks)
            if outside is not None:
                terms = dict(zip(terms, outside.leave(*terms.values()), strict=True))
            if ranks.size == 1:  # one rank of several must not raise alone
                no_overflow(type(self).__name__, terms, *z)
            return terms

    def now(self, name: str) -> float:
        """The weight `name` at this step.  A share of the gradient counts as 1 here; it is applied after the maths."""
        return 1.0 if isinstance(getattr(self, name), Share) else super().now(name)

    def shares(self) -> dict[str, Share]:
        """The weights that are shares of the gradient, by name."""
        return {name: weight for name, weight in vars(self).items() if isinstance(weight, Share)}

    def governed(self, weight: str, terms: Terms) -> list[str]:
        """The terms that a weight multiplies: the term of the same name, or else all but the invariance."""
        weight = self.weighs.get(weight, weight)
        return [weight] if weight in terms else [name for name in terms if name not in INVARIANCE]

    @torch.compiler.disable
    def _with_shares(self, z: Tensor | list[Tensor], n_global: int, ranks: Ranks) -> Terms:
        live = torch.is_grad_enabled() and any(view.requires_grad for view in z)
        with torch.enable_grad():
            if not live:
                leaf = [view.detach().requires_grad_() for view in z]
                z = torch.stack(leaf) if isinstance(z, Tensor) else leaf
            terms = self.compute_on_ranks(z, n_global, ranks)
            owners = {weight: self.governed(weight, terms) for weight in self.shares()}
            found = keep_shares(terms, self.shares(), owners, [z] if isinstance(z, Tensor) else z, ranks=ranks)
        terms = self._scaled(terms, owners, found)
        return terms if live else {name: term.detach() for name, term in terms.items()}

    def _scaled(self, terms: Terms, owners: dict[str, list[str]], weights: dict[str, Tensor]) -> Terms:
        """The terms with the weights that were found for shares."""
        of = {name: weights[weight] for weight, names in owners.items() for name in names}
        return {name: of[name].to(term.dtype) * term if name in of else term for name, term in terms.items()}

    def compute_on_ranks(self, z: Tensor | list[Tensor], n_global: int, ranks: Ranks) -> Terms:
        """The terms of the whole batch, the same on every rank.  `z` is this rank's part of the batch."""
        stacked = z if isinstance(z, Tensor) else torch.stack(z)
        return self.compute(concat_over_ranks(stacked, 1, ranks=ranks), n_global)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        """The maths, for the whole batch.  The first `n_global` views are global, the others local."""
        raise NotImplementedError(f"{type(self).__name__} has neither compute nor compute_on_ranks")

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnViews":
        """The copy keeps the same process group, which cannot be copied."""
        memo[id(self.group)] = self.group
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def _ranks(self, z: Tensor | list[Tensor]) -> Ranks:
        if not self.gather:
            return Ranks((z[0].shape[0],))
        shape = (len(z), *z[0].shape)
        return agree(z[0].expand(shape), dim=1, group=self.group)

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

    def _require_least(self, z: Tensor | list[Tensor], ranks: Ranks) -> None:
        least = (self.least_views, self.least_samples, self.least_features)
        shape = (len(z), ranks.samples, z[0].shape[1])
        if any(got < wanted for got, wanted in zip(shape, least, strict=True)):
            raise ValueError(f"{type(self).__name__} needs (views, samples, features) of at least {least}, got {shape}")


def checked(name: str, *views: Views) -> Tensor | list[Tensor]:
    """A list of (n, d) tensors, given one by one or as a sequence.  One tensor (v, n, d) stays as it is."""
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
        if z.device != every[0].device:
            raise ValueError(f"{name}: view 0 is on {every[0].device} and view {i} on {z.device}")
    if not every or every[0].numel() == 0:
        raise ValueError(f"{name} got an empty tensor or no views at all")
    return every[0] if every[0].ndim == 3 else every


def separate(z: Tensor | list[Tensor]) -> list[Tensor]:
    """One (n, d) tensor for each view.  The gradient of unbind is one stack; that of each z[i] is as large as z."""
    return list(z.unbind()) if isinstance(z, Tensor) else z


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
    """The pairs of views that are compared: each pair with a global view, once."""
    return ((i, j) for i in range(n_global) for j in range(i + 1, v))
