"""What the calls since the last time contribute to the loss."""

from collections.abc import Sequence

import torch

from reglet.attach.link import Link
from reglet.attach.tap import PerBlock, Tap
from reglet.precision import no_autocast
from reglet.types import Scalar, Terms


def collect(taps: Sequence[Tap] | Sequence[Link], *, reduction: str, allow_unused: bool = False) -> Terms:
    """What each block contributes to the loss of all calls since the last `collect`, in float32.  Starts anew."""
    try:
        _check(taps, allow_unused=allow_unused)
        with no_autocast(torch.empty(0, device=taps[0].device)):
            values = {name: torch.stack(found).mean() for name, found in _of_calls(taps).items() if found}
    finally:
        for tap in taps:
            tap.clear()
    weight = 1.0 if reduction == "sum" else 1 / max(1, len(values))
    return {name: weight * value for name, value in values.items()}


def _of_calls(taps: Sequence[Tap] | Sequence[Link]) -> dict[str, list[Scalar]]:
    """The loss of every call, block by block."""
    loss = taps[0].loss
    if not isinstance(loss, PerBlock):
        return {tap.name: tap.losses() for tap in taps}
    calls = [(tap, pair) for tap in taps if tap.ran for pair in tap.pairs if tap.head is not None]
    found: dict[str, list[Scalar]] = {tap.name: [] for tap in taps}
    for (tap, _), value in zip(calls, loss.losses([t.head for t, _ in calls], [p for _, p in calls]), strict=True):
        found[tap.name].append(value)
    return found


def _check(taps: Sequence[Tap] | Sequence[Link], *, allow_unused: bool) -> None:
    followed = [tap for tap in taps if not tap.skipped]
    if not followed:
        raise RuntimeError("all chosen blocks are left out (match='skip'?): there is nothing to compute")
    unseen = [tap.name for tap in followed if not (tap.ran or tap.idle)]
    if len(unseen) == len(followed):
        raise RuntimeError(
            "a loss was asked for, and no block ran since the last one. If the model did run: a model compiled before "
            "attach() ignores it, and a copy of a model is not attached."
        )
    if unseen and not allow_unused:
        raise RuntimeError(f"did not run: {', '.join(unseen)}. If that is meant, attach(..., allow_unused=True)")
    freed = [tap.name for tap in followed if tap.ran and tap.freed]
    if freed and torch.is_grad_enabled():
        raise RuntimeError(
            f"backward() has run and freed the graph of {', '.join(freed)}. Ask for loss() before it and add the two "
            "losses, or call backward(retain_graph=True) first."
        )
    blind = [tap.name for tap in followed if not tap.ran and "no_grad" in tap.idle]
    if blind and torch.is_grad_enabled():
        raise RuntimeError(
            f"ran in training mode without gradients: {', '.join(blind)}. Under activation checkpointing use "
            "checkpoint(..., use_reentrant=False); after a forward under no_grad, ask for the loss under no_grad too."
        )
