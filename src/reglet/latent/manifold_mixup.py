"""Manifold Mixup.  Verma et al., ICML 2019, arXiv:1806.05236."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.attach import Alteration, Where, alter, matching
from reglet.attach.hooks import recomputing
from reglet.latent.mixup import Mix, Mixup, interpolate, soft_labels

INPUT = "input"


class LayerMix(NamedTuple):
    """The draw of Manifold Mixup.

    >>> draw = LayerMix("layer1", Mix(0.5, torch.tensor([1, 0])))
    >>> draw.layer, draw.mix.lam
    ('layer1', 0.5)
    """

    layer: str  # a block's name, or "input"
    mix: Mix


class ManifoldMixup:
    """Mixup of the hidden states of one layer, which is drawn anew at each step from a set of layers:

        h_i <- lam h_i + (1 - lam) h_pi(i) at layer k,    lam ~ Beta(alpha, alpha),    and the same for labels

    model: any network.  where: its blocks, as in `reglet.attach`.  with_input: the input is one of the layers, as in
        the paper.  alpha: 2 in the paper's CIFAR runs.

    Only calls through this object are mixed.  `model(x)` does not change, and `remove()` removes every trace.

    >>> model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    >>> mixing = ManifoldMixup(model, ["0", "1"])
    >>> p = mixing.draw(2)
    >>> logits, y = mixing(torch.randn(2, 4), p), mixing.labels(torch.tensor([0, 2]), p, num_classes=3)
    >>> mixing.remove()
    """

    def __init__(self, model: nn.Module, where: Where, *, alpha: float = 2.0, with_input: bool = True) -> None:
        check.flag(with_input=with_input)
        blocks = list(matching(model, where))
        if INPUT in blocks and with_input:
            raise ValueError(f"a block has the name {INPUT!r}, which means the input here: give with_input=False")
        self.model, self.mixup = model, Mixup(alpha=alpha)
        self.layers = [INPUT] * with_input + blocks
        self._drawn: LayerMix | None = None  # while a call is running
        self._ran, self._recomputed = False, False
        self._awaited: list[LayerMix | None] = []  # draws of the last calls that may still be recomputed, at most two
        self._alterations: list[Alteration] = [alter(model, name, self._operator(name)) for name in blocks]

    def draw(self, n: int, generator: torch.Generator | None = None) -> LayerMix:
        layer = self.layers[int(torch.randint(len(self.layers), (), generator=generator, device="cpu"))]
        return LayerMix(layer, self.mixup.draw(n, generator))

    def __call__(self, x: Float[Tensor, "n ..."], p: LayerMix) -> Any:
        """The output of the model for x, mixed at the drawn layer."""
        with self.mixing(p):
            return self.model(self.at_input(x, p))

    def at_input(self, x: Float[Tensor, "n ..."], p: LayerMix) -> Float[Tensor, "n ..."]:
        """x, mixed if the input is the drawn layer."""
        return self.mixup.apply(x, p.mix) if p.layer == INPUT else x

    @contextmanager
    def mixing(self, p: LayerMix) -> Iterator[None]:
        """Inside, all calls of the model are mixed at the drawn layer.  The input is mixed by `at_input`."""
        if not self.model.training:
            raise RuntimeError("Manifold Mixup works in training only; this model is in eval mode: call it directly")
        if p.layer not in self.layers:
            raise ValueError(f"drawn for layer {p.layer!r}; here are {', '.join(self.layers)}")
        self._drawn, self._ran = p, p.layer == INPUT
        try:
            yield
        finally:
            self._drawn = None
        if not self._ran:
            raise RuntimeError(f"block {p.layer!r} did not run in training mode, so nothing was mixed")

    def labels(self, y: Tensor, p: LayerMix, *, num_classes: int) -> Float[Tensor, "n k"]:
        """The labels of samples mixed by `p`.  `y` holds class indices (n,) or soft labels (n, num_classes)."""
        return interpolate(soft_labels(y, num_classes=num_classes), p.mix.partner, lam=p.mix.lam)

    def remove(self) -> None:
        for alteration in self._alterations:
            alteration.remove()

    def _operator(self, name: str) -> Callable[[Tensor], Tensor]:
        def operator(h: Tensor) -> Tensor:
            p = self._again() if recomputing() else self._first()
            if p is None or p.layer != name:
                return h
            self._ran = True
            return self.mixup.apply(h, p.mix)

        return operator

    def _first(self) -> LayerMix | None:
        """The draw of the current call; None if the model was called directly."""
        if self._recomputed:
            self._awaited, self._recomputed = [], False
        if not any(p is self._drawn for p in self._awaited):
            self._awaited = [*self._awaited[-1:], self._drawn]
        return self._drawn

    def _again(self) -> LayerMix | None:
        """The draw of the call that activation checkpointing repeats in the backward pass."""
        if len(self._awaited) > 1:
            raise RuntimeError(
                "a checkpointed block is recomputed after several calls of the model with different mixing, and cannot "
                "tell which one to repeat: run the backward pass after each call"
            )
        self._recomputed = True
        return self._awaited[0]
