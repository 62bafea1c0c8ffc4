"""Any classifier, trained on mixed samples: Mixup, CutMix, Manifold Mixup, MixStyle."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from reglet.attach import alter
from reglet.latent import CutMix, ManifoldMixup, MixStyle, Mixup
from reglet.method import Batch, Method, MethodWrapper, innermost
from reglet.types import Terms

Mixing = Literal["mixup", "cutmix", "manifold", "mixstyle"]
AT_BLOCKS = ("manifold", "mixstyle")


class Mixed(MethodWrapper):
    """`method` with mixed batches in training.  At inference nothing is mixed.

    mixing: mixup and cutmix mix images and labels.  manifold mixes labels and the hidden states of one of `blocks`, or
        the input.  mixstyle mixes the statistics of `blocks`, and no labels.
    blocks: by their names in the method's backbone; for manifold and mixstyle.
    alpha: of Beta(alpha, alpha); by default each paper's own (for Mixup 0.2, as on ImageNet).

    >>> import torch
    >>> from reglet.backbones import ConvNet
    >>> from reglet.methods import Supervised
    >>> method = Mixed(Supervised(ConvNet(widths=(8, 16), depth=1), classes=3), "mixup", classes=3)
    >>> list(method(Batch([torch.rand(8, 3, 16, 16)], labels=torch.arange(8) % 3)))
    ['cross_entropy']
    """

    def __init__(
        self,
        method: Method,
        mixing: Mixing,
        *,
        classes: int,
        blocks: Sequence[str] = (),
        alpha: float | None = None,
    ) -> None:
        super().__init__()
        if mixing not in ("mixup", "cutmix", *AT_BLOCKS):
            raise ValueError(f"mixing is mixup, cutmix, manifold or mixstyle; got {mixing!r}")
        if (mixing in AT_BLOCKS) != bool(blocks):
            raise ValueError(f"blocks are for {' and '.join(AT_BLOCKS)}, which need them: {mixing} got {list(blocks)}")
        self.method, self.mixing, self.classes = method, mixing, classes
        backbone = innermost(method).get_submodule("backbone")
        given: dict[str, Any] = {} if alpha is None else {"alpha": alpha}
        self.samples: Any = CutMix(**given) if mixing == "cutmix" else Mixup(**({"alpha": 0.2} | given))
        self.manifold = ManifoldMixup(backbone, list(blocks), **given) if mixing == "manifold" else None
        if mixing == "mixstyle":
            alter(backbone, list(blocks), MixStyle(**given))

    def forward(self, batch: Batch) -> Terms:
        if batch.labels is None or len(batch.views) != 1:
            raise ValueError(f"{self.mixing} mixes one labelled view of each sample, got {len(batch.views)} views")
        if not self.training or self.mixing == "mixstyle":
            return self._terms(batch)
        (x,), y = batch.views, batch.labels
        if self.manifold is None:
            x, y = self.samples.mix(x, y, self.samples.draw(len(x)), num_classes=self.classes)
            return self._terms(replace(batch, views=[x], labels=y))
        drawn = self.manifold.draw(len(x))
        y = self.manifold.labels(y, drawn, num_classes=self.classes)
        with self.manifold.mixing(drawn):
            return self._terms(replace(batch, views=[self.manifold.at_input(x, drawn)], labels=y))

    def _terms(self, batch: Batch) -> Terms:
        terms: Terms = self.method(batch)
        return terms
