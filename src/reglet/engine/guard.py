"""When a loss or gradient is not finite, the step is undone, and a file is written that reproduces it.

Asking the GPU at every step whether its numbers are finite would make it wait at every step.  So it is asked only when
metrics are read.  Until then, a flag on the device keeps all later steps from changing anything.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from reglet.engine.shard import local, whole
from reglet.methods.momentum import Teacher
from reglet.types import Terms


class NonFiniteError(FloatingPointError):
    """The loss or its gradient was not finite; `bundle` is the file that reproduces the step."""

    def __init__(self, message: str, bundle: Path) -> None:
        super().__init__(message)
        self.bundle = bundle


class Guard:
    """From the first step that is not finite, `spoiled` is 1 on the device.  The state before that step is kept:

    - trained weights: optimizers take `spoiled` as their `found_inf` and do not change weights and moments;
    - teachers: they do not move;
    - buffers, and parameters that change without a gradient: a copy is kept here;
    - what modules save besides tensors (`get_extra_state`): kept on the host for every step since the last `clear`.
    """

    def __init__(self, method: nn.Module, device: torch.device) -> None:
        self.spoiled = torch.zeros((), dtype=torch.float32, device=device)  # float32, because found_inf must be
        self.steps = torch.zeros_like(self.spoiled)  # number of spoiled steps
        taught: set[Tensor] = set()
        for module in method.modules():
            if isinstance(module, Teacher):
                module.held = self.spoiled
                taught |= set(module.parameters())
        self.buffers = list(method.buffers())
        self.frozen = [p for p in method.parameters() if not p.requires_grad and p not in taught]
        self.versions: list[int] = []
        self.moving = list(self.frozen)  # all of them, until we know which ones change
        self.copies: list[tuple[list[Tensor], Tensor]] = []
        self.stateful = [m for m in method.modules() if type(m).get_extra_state is not nn.Module.get_extra_state]
        self.extra: dict[int, list[Tensor]] = {}

    @torch.no_grad()
    def remember(self, step: int) -> None:
        """Keeps the state before a step, with two kernels for each dtype."""
        self.extra[step] = [module.get_extra_state().clone() for module in self.stateful]
        self.versions = self.versions or [p._version for p in self.frozen]
        if not self.copies:
            tensors = self.buffers + self.moving
            kinds = dict.fromkeys((x.dtype, x.device) for x in tensors)
            groups = [[x for x in tensors if (x.dtype, x.device) == kind] for kind in kinds]
            self.copies = [(group, _flat(group)) for group in groups]
            return
        self.copies = [(xs, torch.where(self.spoiled.to(kept.device) > 0, kept, _flat(xs))) for xs, kept in self.copies]

    @torch.no_grad()
    def judge(self, bad: Tensor) -> None:
        """bad: the number of ranks on which the step was not finite, as a tensor on the device."""
        self.spoiled.copy_((self.spoiled + bad).clamp(max=1))
        self.steps.add_(self.spoiled)

    def clear(self) -> None:
        """Called when the host has seen that all steps were finite.  Forgets what is not needed any more."""
        changed = [p for p, version in zip(self.frozen, self.versions, strict=True) if p._version != version]
        if len(changed) != len(self.moving):
            self.moving, self.copies = changed, []
        self.extra.clear()

    @torch.no_grad()
    def restore(self, step: int) -> None:
        """Restores the state before `step`, the first spoiled step."""
        self.spoiled.zero_()
        self.steps.zero_()
        for tensors, kept in self.copies:
            for x, part in zip(tensors, kept.split([local(x).numel() for x in tensors]), strict=True):
                local(x).copy_(part.view(local(x).shape))
        for module, state in zip(self.stateful, self.extra[step], strict=True):
            module.set_extra_state(state)


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([local(x).detach().reshape(-1) for x in tensors])


def complaint(terms: Mapping[str, float], norm: float | None) -> str:
    """Says what is not finite; "" if all is."""
    bad = [f"{name} = {term}" for name, term in terms.items() if not math.isfinite(term)]
    if not bad and norm is not None and not math.isfinite(norm):
        bad = [f"norm of the gradient = {norm}"]
    return ", ".join(bad)


def side_by_side(terms: Terms, norm: Tensor | None) -> Tensor:
    """The terms, and the norm if there is one, as one tensor, so that one copy reads them."""
    numbers = [*terms.values(), *([] if norm is None else [norm])]
    dtype = torch.float64 if any(x.dtype == torch.float64 for x in numbers) else torch.float32
    return torch.stack([x.detach().to(dtype).reshape(()) for x in numbers])


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The norm over all ranks: a shard knows only its own part."""
    return whole(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
