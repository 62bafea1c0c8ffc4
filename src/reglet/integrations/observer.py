"""What the doctor sees of a model that somebody else trains: the outputs of named modules, step by step."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from reglet.attach import matching, watch
from reglet.attach.watch import Taps
from reglet.diagnostics.verdict import Verdict
from reglet.doctor import Doctor
from reglet.types import Terms

Read = Callable[[Tensor], Tensor]


class Observer:
    """Between `begin()` and `end(loss)` lies the forward of one training step.

    embeddings: the module whose output the loss compares; each of its calls is a view.
    views: that one call holds, one after the other: 2 where both views go through the network as one batch.
    features: the module whose output is what the encoder has learned, if that is another one.
    loss: the module that computes the loss of views, such as VISRegLoss.  With it the doctor knows the share of the
        regularizer.  It is asked for its terms once more at each look, as a copy, so that training does not notice.
    read: what becomes of an output; the doctor takes (n, d).  `lambda h: h[:, 0]` is the class token of a ViT.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> observer = Observer(net, Doctor(every=1, grace=0), embeddings="2", features="1")
    >>> observer.begin()
    >>> loss = net(torch.randn(64, 4)).square().mean()
    >>> observer.end(loss).numbers["features.d"]
    8.0
    >>> observer.remove()
    """

    def __init__(
        self,
        model: nn.Module,
        doctor: Doctor,
        *,
        embeddings: str,
        features: str = "",
        loss: str = "",
        views: int = 1,
        read: Read | None = None,
    ) -> None:
        names = [name for name in (embeddings, features) if name]
        for name in names:
            if len(found := matching(model, name)) > 1:
                raise ValueError(
                    f"{name!r} means {len(found)} modules, and the doctor looks at one: {', '.join(found)}"
                )
        self.doctor, self.embeddings, self.features, self.views, self.read = doctor, embeddings, features, views, read
        self.loss = matching(model, loss)[loss] if loss else None
        if self.loss is not None and not callable(getattr(self.loss, "terms", None)):
            raise TypeError(f"loss={loss!r} is a {type(self.loss).__name__}, which has no terms(*views)")
        self.watch = watch(model, names)
        self._open: AbstractContextManager[Taps] | None = None
        self._taps: Taps = {}

    def begin(self) -> None:
        self._open = self.watch.open()
        self._taps = self._open.__enter__()

    def end(self, loss: Tensor) -> Verdict | None:
        """After the forward, before backward.  Gives a verdict where the doctor looked."""
        if self._open is None:
            return None
        self._open.__exit__(None, None, None)
        taps, self._open, self._taps = self._taps, None, {}
        z = [view for h in taps[self.embeddings] for view in self._read(self.embeddings, h).chunk(self.views)]
        features = self._read(self.features, taps[self.features][0]) if self.features else None
        terms = self._terms(z) if self.loss is not None and self.doctor.due else None
        return self.doctor.observe(z, features=features, terms=terms, loss=loss, model=self.loss)

    def remove(self) -> None:
        self.watch.remove()

    def _terms(self, z: Sequence[Tensor]) -> Terms:
        copied: Any = deepcopy(self.loss)
        terms: Terms = copied.terms(*z)
        return terms

    def _read(self, name: str, h: Tensor) -> Tensor:
        x = h if self.read is None else self.read(h)
        if x.ndim != 2:
            raise ValueError(
                f"{name!r} gives {tuple(x.shape)}, and the doctor takes one vector for each sample, (n, d): "
                "read= makes one of an output, lambda h: h[:, 0] or h.flatten(2).mean(2), say"
            )
        return x
