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
    """What Manifold Mixup drew.

    >>> draw = LayerMix("layer1", Mix(0.5, torch.tensor([1, 0])))
    >>> draw.layer, draw.mix.lam
    ('layer1', 0.5)
    """

    layer: str  # a block's name, or "input"
    mix: Mix


class ManifoldMixup:
    """Mixup of the hidden states of one layer, drawn anew each step from a set of layers:

        h_i <- lam h_i + (1 - lam) h_pi(i) at layer k,    lam ~ Beta(alpha, alpha),    labels alike

    model: any network; `where`: its blocks, as in `reglet.attach`.  with_input: the input is one of the layers, as in
        the paper.  alpha is 2 in the paper's CIFAR runs.

    Only calls through this object are mixed; `model(x)` is as it was, and `remove()` takes the last trace away.

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
            raise ValueError(f"a block is called {INPUT!r}, as the input is here: choose others or with_input=False")
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
        """What the model makes of x, mixed at the layer drawn."""
        with self.mixing(p):
            return self.model(self.at_input(x, p))

    def at_input(self, x: Float[Tensor, "n ..."], p: LayerMix) -> Float[Tensor, "n ..."]:
        """x, mixed where the input is the layer drawn."""
        return self.mixup.apply(x, p.mix) if p.layer == INPUT else x

    @contextmanager
    def mixing(self, p: LayerMix) -> Iterator[None]:
        """In it, calls of the model are mixed at the layer drawn, whoever makes them; the input by `at_input`."""
        if not self.model.training:
            raise RuntimeError("Manifold Mixup mixes in training; this model is in eval mode: call it by itself")
        if p.layer not in self.layers:
            raise ValueError(f"drawn for layer {p.layer!r}; here are {', '.join(self.layers)}")
        self._drawn, self._ran = p, p.layer == INPUT
        try:
            yield
        finally:
            self._drawn = None
        if not self._ran:
            raise RuntimeError(f"block {p.layer!r} did not run in training mode, so that nothing was mixed")

    def labels(self, y: Tensor, p: LayerMix, *, num_classes: int) -> Float[Tensor, "n k"]:
        """The labels of what `p` mixes.  `y` holds class indices (n,) or is soft already (n, num_classes)."""
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
        """The draw of the call that is running; none if the model was called by itself."""
        if self._recomputed:
            self._awaited, self._recomputed = [], False
        if not any(p is self._drawn for p in self._awaited):
            self._awaited = [*self._awaited[-1:], self._drawn]
        return self._drawn

    def _again(self) -> LayerMix | None:
        """The draw of the call that activation checkpointing, in the backward pass, runs again."""
        if len(self._awaited) > 1:
            raise RuntimeError(
                "a checkpointed block is recomputed after several calls of the model with different mixing, and cannot "
                "know which one is meant: let the backward pass of each call follow it"
            )
        self._recomputed = True
        return self._awaited[0]
