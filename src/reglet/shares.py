"""A share of the gradient instead of a weight: `weight="share:0.3"`.

n_i is the norm of the gradient of term i, before its weight c_i.  R is the sum of the norms of all terms that have a
fixed weight.  Terms with shares s_i get

    c_i = s_i / (1 - sum_j s_j)  R / n_i        so that     c_i n_i / (R + sum_j c_j n_j) = s_i

A view loss measures gradients on the embeddings, at every step.  `reglet.Doctor` shows the same share.  Terms that are
added by `Regularized`, `Equivariant` or `Preserved` are measured on the network's weights, at some of the steps.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from reglet.dist import Ranks, sum_over_ranks, world_size
from reglet.precision import has_float64
from reglet.schedules import Scheduled, Share, Weight, checked_weight
from reglet.types import Scalar, Terms

EVERY, FIRST = 20, 10  # steps between two measurements, after the first steps, which are all measured
NEW = 0.4  # weight of a measurement in the mean: a single batch can be off by a factor of 2


def gradient_norm(term: Tensor, tensors: Sequence[Tensor]) -> Scalar:
    """The norm of `term`'s gradient with respect to all `tensors` together."""
    own = [x for x in tensors if x.requires_grad]
    if not term.requires_grad or not own:
        return _norm([], term)
    return _norm(torch.autograd.grad(term, own, retain_graph=True, allow_unused=True), term)


def _norm(grads: Sequence[Tensor | None], like: Tensor) -> Scalar:
    """In float64 if the device has it, so that squares of tiny numbers are not lost."""
    exact = torch.float64 if has_float64(like.device) else torch.float32
    found = [torch.linalg.vector_norm(g.detach(), dtype=exact) for g in grads if g is not None]
    return torch.linalg.vector_norm(torch.stack(found)) if found else torch.zeros((), dtype=exact, device=like.device)


@torch.compiler.disable
def factors(shares: Mapping[str, float], norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """c_i of each term in `shares`; NaN if its gradient, or that of all others, is zero.

    >>> found = factors({"a": 0.25}, {"a": torch.tensor(2.0), "b": torch.tensor(3.0)})
    >>> found["a"].item()  # 0.5 * 2 is a quarter of 0.5 * 2 + 3
    0.5
    """
    rest = torch.stack([norm for name, norm in norms.items() if name not in shares]).sum()
    left = 1 - sum(shares.values())
    return {
        name: torch.where((norms[name] > 0) & (rest > 0), share / left * rest / norms[name], torch.nan)
        for name, share in shares.items()
    }


def require_room(shares: Iterable[float]) -> None:
    """Raise if no gradient would be left for the other terms."""
    given = list(shares)
    if sum(given) >= 1:
        raise ValueError(f"shares of the gradient must add up to less than 1, got {' + '.join(map(str, given))}")


class SharedWeight(Scheduled, nn.Module):
    """The weight of a term that is added to a network's loss: a number, a schedule, or a share of the gradient.

        weight = SharedWeight("share:0.3")
        loss = task + weight(penalty, task, on=net.parameters())

    A share is measured on those of `on` that the penalty reaches, in each of the first ten steps and in every twentieth
    step after them.  A measurement takes one more backward pass for each of the two sides.  In the first steps the
    share is exact.  After them the weight is a moving geometric mean of the measurements.  Before the penalty has a
    gradient, its weight is 0.  `reglet.set_step` sets the step; without it, calls are counted.

    >>> w = torch.ones(2, requires_grad=True)
    >>> weight = SharedWeight("share:0.5")
    >>> round(weight(100 * w[1], w[0], on=[w]).item(), 4)  # as much as the gradient of w[0], for which 100 is too much
    1.0
    """

    now_weight: Tensor
    mean_weight: Tensor

    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self.weight = checked_weight("weight", weight)
        self.calls = 0
        if isinstance(self.weight, Share):
            self.register_buffer("now_weight", torch.zeros(()))
            self.register_buffer("mean_weight", torch.zeros(()))  # geometric, of all measurements

    def forward(self, term: Tensor, rest: Tensor, *, on: Iterable[Tensor]) -> Tensor:
        """`term` with its weight.  rest: the loss without it.  on: the tensors on which gradients are compared."""
        return self.value(term, rest, on=on) * term

    def value(self, term: Tensor, rest: Tensor, *, on: Iterable[Tensor]) -> float | Tensor:
        """The weight only, for a term that consists of parts."""
        measures = isinstance(self.weight, Share) and self.training
        if measures and term.requires_grad and torch.is_grad_enabled():
            self._measure(term, rest, list(on))
        return self.current()

    def current(self) -> float | Tensor:
        """The weight as it was last set or measured."""
        return self.now_weight.clone() if isinstance(self.weight, Share) else self.now("weight")

    @property
    def due(self) -> bool:
        """Whether a share is measured at this step."""
        step = self.calls if self._step is None else self._step
        return isinstance(self.weight, Share) and (step < FIRST or step % EVERY == 0)

    @torch.compiler.disable
    def _measure(self, term: Tensor, rest: Tensor, on: list[Tensor]) -> None:
        if self.due:
            trained = [p for p in on if p.requires_grad]
            grads = torch.autograd.grad(term, trained, retain_graph=True, allow_unused=True)
            both = [p for p, g in zip(trained, grads, strict=True) if g is not None]
            self._take(_norm(grads, term), gradient_norm(rest, both))
        self.calls += 1

    def measure(self, own: Sequence[Tensor | None], rest: Sequence[Tensor]) -> None:
        """Takes a measurement from gradients that are known: of the penalty, and of the rest on the same tensors."""
        if self.due:
            both = [r for r, g in zip(rest, own, strict=True) if g is not None]
            self._take(_norm(own, rest[0]), _norm(both, rest[0]))
        self.calls += 1

    def _take(self, own: Tensor, rest: Tensor) -> None:
        assert isinstance(self.weight, Share)
        step = self.calls if self._step is None else self._step
        norms = torch.stack([own, rest])
        if world_size() > 1:  # all ranks have one weight
            norms = sum_over_ranks(norms)
        found = factors({"own": self.weight.share}, {"own": norms[0], "rest": norms[1]})["own"]
        with torch.no_grad():
            found, mean = found.to(self.now_weight), self.mean_weight
            moved = torch.where(mean > 0, mean ** (1 - NEW) * found**NEW, found)
            known = found.isfinite()
            mean.copy_(torch.where(known, moved, mean))
            self.now_weight.copy_(torch.where(known, found if step < FIRST else moved, self.now_weight))


def keep_shares(
    terms: Terms,
    shares: Mapping[str, Share],
    owners: Mapping[str, Sequence[str]],
    tensors: Sequence[Tensor],
    *,
    ranks: Ranks,
) -> dict[str, Tensor]:
    """The value of each weight in `shares` at this step.  If a norm is zero, the weight is 1.

    terms: of a loss that takes 1 for these weights.
    owners: weight -> the terms that it multiplies.  The norm of several terms is the sum of theirs, as in the doctor.
    tensors: this rank's part of the embeddings.
    """
    require_room(share.share for share in shares.values())
    squares = torch.stack([gradient_norm(term, tensors).square() for term in terms.values()]).detach()
    if ranks.size > 1:
        squares = sum_over_ranks(squares, group=ranks.group)
    norms = dict(zip(terms, squares.sqrt(), strict=True))
    totals = {weight: torch.stack([norms[name] for name in names]).sum() for weight, names in owners.items()}
    rest = {f"rest.{name}": norm for name, norm in norms.items() if not any(name in names for names in owners.values())}
    if not rest:
        raise ValueError(f"{', '.join(shares)}: all terms are shares of the gradient. Give one of them a weight")
    found = factors({weight: share.share for weight, share in shares.items()}, totals | rest)
    return {weight: torch.where(c.isfinite(), c, 1.0) for weight, c in found.items()}
