"""AdamW, Adam, SGD and LARS, with weight decay on matrices and kernels only; and the learning rate of each step.

The rate rises linearly during the warm-up.  After it there are three schedules.  t goes from 0 to 1 after the warm-up:

    cosine     lr (1 + cos(pi t)) / 2
    half       lr for t < 1/2, then lr 2 (1 - t): constant, then linear to zero, as in image translation
    constant   lr
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from reglet.engine.shard import local
from reglet.method import Method, innermost
from reglet.probes.layer_decay import depths

SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "half": lambda t: min(1.0, 2 * (1 - t)),
    "constant": lambda t: 1.0,
}


def learning_rate(name: str, step: int, *, steps: int, warmup: int, peak: float) -> float:
    """The rate of step `step` of `steps`, counted from 0.  It rises during the first `warmup` steps.

    >>> [round(learning_rate("cosine", s, steps=6, warmup=2, peak=1.0), 3) for s in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * SCHEDULES[name]((step - warmup) / (steps - warmup))


ADAM: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
OPTIMIZERS = (*ADAM, "sgd", "lars")


def parameter_groups(module: nn.Module, *, weight_decay: float, layer_decay: float = 1.0) -> list[dict[str, Any]]:
    """Groups with weight decay, and groups without: norms, biases and all other tensors with at most one axis.

    scale: the factor of a group's learning rate; see `layer_scales`.
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    scales = layer_scales(module, layer_decay)
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for decays in (True, False):
        for p in trained:
            if (p.ndim > 1) == decays:
                scale = scales.get(p, 1.0)
                new = {"params": [], "weight_decay": weight_decay if decays else 0.0, "scale": scale}
                groups.setdefault((scale, decays), new)["params"].append(p)
    return list(groups.values())


def layer_scales(module: nn.Module, layer_decay: float) -> Mapping[Tensor, float]:
    """layer_decay^(L + 1 - l) for a weight in block l of L of a method's backbone.  Heads have no entry.

    >>> from reglet.backbones import vit_mini
    >>> from reglet.methods import Supervised
    >>> method = Supervised(vit_mini(size=32), classes=2)
    >>> scales = layer_scales(method, 0.5)
    >>> scales[method.backbone.blocks[5].norm1.weight], method.head.weight in scales
    (0.5, False)
    """
    if layer_decay == 1.0:
        return {}
    if not isinstance(module, Method):
        raise ValueError(f"layer_decay needs a Method with a backbone, and {type(module).__name__} is none")
    backbone = innermost(module).get_submodule("backbone")
    depth, top = depths(backbone)
    return {p: layer_decay ** (top - depth[name]) for name, p in backbone.named_parameters()}


def build_optimizer(
    module: nn.Module, name: str, *, lr: float, weight_decay: float, momentum: float = 0.9, layer_decay: float = 1.0
) -> torch.optim.Optimizer:
    """momentum: of SGD and LARS, and the first beta of Adam and AdamW.  layer_decay: see `layer_scales`.

    All skip a step if `optimizer.found_inf` is 1 on the device, as torch's fused optimizers do.
    """
    groups = parameter_groups(module, weight_decay=weight_decay, layer_decay=layer_decay)
    if not groups:
        raise ValueError(f"{type(module).__name__} has no parameter that could be trained")
    if name == "lars":
        return LARS(groups, lr=lr, momentum=momentum)
    if name == "sgd":
        return SGD(groups, lr=lr, momentum=momentum, fused=True)
    if name not in ADAM:
        raise ValueError(f"optimizers are {', '.join(OPTIMIZERS)}; got {name!r}")
    return ADAM[name](groups, lr=lr, betas=(momentum, 0.999), fused=True)


class SGD(torch.optim.SGD):
    """torch's fused kernel on each rank's own part of the weights.

    torch 2.13 has no fused SGD for sharded weights, and leaves the momentum uninitialized if the first step is skipped.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            kept: list[Tensor | None] = [self._momentum(p) if group["momentum"] else None for p in moved]
            sgd(
                [local(p) for p in moved],
                [local(p.grad) for p in moved],
                kept,
                fused=True,
                grad_scale=getattr(self, "grad_scale", None),
                found_inf=getattr(self, "found_inf", None),
                **{key: group[key] for key in ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")},
            )
        return loss

    def _momentum(self, p: Tensor) -> Tensor:
        if "momentum_buffer" not in self.state[p]:
            self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        return local(self.state[p]["momentum_buffer"])


class LARS(torch.optim.Optimizer):
    """SGD with momentum.  The step of each layer is scaled to a share of its weights' norm.  You et al. 2017.

        u = g + decay p,    q = trust |p| / |u|    (1 for vectors, and where a norm is zero)
        m = momentum m + q u,    p = p - lr m

    As in Barlow Twins and VICReg, vectors are neither decayed nor scaled, and the scale is inside the momentum.
    grad_scale and found_inf are those of torch's fused optimizers: the factor of the gradients, and 1 to skip the step.
    """

    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 1e-3,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)
        return loss

    def _update(self, p: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        scale, skipped = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if scale is not None:
            g = g / scale
        if p.ndim > 1:
            u = g.add(p, alpha=group["weight_decay"])
            weight, length = torch.linalg.vector_norm(p), torch.linalg.vector_norm(u)
            q = torch.where((weight > 0) & (length > 0), group["trust"] * weight / length, torch.ones_like(weight))
            g = u.mul(q)
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p)
        m = state["momentum_buffer"]
        moved = m * group["momentum"] + g
        m.copy_(moved if skipped is None else torch.where(skipped > 0, m, moved))
        p.sub_(m * group["lr"] if skipped is None else m * (group["lr"] * (1 - skipped)))
