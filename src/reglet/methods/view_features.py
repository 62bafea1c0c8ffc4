"""Reads the features of every view at a layer while a method uses the network."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.attach import watch
from reglet.backbones.protocol import dim_of
from reglet.method import Batch, Method, innermost
from reglet.methods.equivariant_batch import observed
from reglet.methods.token_maps import as_tokens, layer_names, widths
from reglet.types import Terms
from reglet.views import Draw


class Reader(nn.Module):
    """layer: None for the output of the backbone, or one layer as in `Equivariant`.  A layer is averaged over its patch
        tokens or its map, because [CLS] may join later.  The papers do not say how to pool.

    It has no parameters.  It is a module only so that it is printed.
    """

    def __init__(self, method: Method, layer: int | str | None, *, example: Tensor | None = None) -> None:
        super().__init__()
        backbone = innermost(method).get_submodule("backbone")
        self.block = "" if layer is None else layer_names(backbone, layer)[0]
        self.dim = dim_of(backbone) if layer is None else widths(backbone, [self.block], example)[0]

    def extra_repr(self) -> str:
        return f"{self.block or 'output'!r}, dim={self.dim}"

    def run(self, method: Method, batch: Batch) -> tuple[Terms, list[Float[Tensor, "n d"]]]:
        """The method's terms, and the features of its views."""
        backbone = innermost(method).get_submodule("backbone")
        sizes = [(x.shape[2], x.shape[3]) for x in batch.views]
        with observed(backbone, sizes, [self.block], n=len(batch.views[0])) as seen:
            terms: Terms = method(batch)
        return terms, [self._pooled(seen[v][self.block], backbone, size) for v, size in enumerate(sizes)]

    def forward(self, backbone: nn.Module, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        """The features of images that the method does not see."""
        eye = watch(backbone, [self.block])
        try:
            with eye.open() as taps:
                backbone(x)
        finally:
            eye.remove()
        return self._pooled(taps[self.block][0], backbone, (x.shape[2], x.shape[3]))

    def _pooled(self, y: Tensor, backbone: nn.Module, size: tuple[int, int]) -> Float[Tensor, "n d"]:
        if y.ndim == 2:
            return y
        patch = getattr(backbone, "patch", None)
        if y.ndim == 3 and not isinstance(patch, int):
            raise ValueError(f"{type(backbone).__name__} has no patch, so it is unknown which tokens are patches")
        return as_tokens(y, image=size, patch=patch if isinstance(patch, int) else 1)[0].mean(1)


def require_draws(batch: Batch, *, of: str) -> Sequence[Draw]:
    if batch.draws is None:
        raise ValueError(f"{of} needs to know how views were made, and this batch has no draws")
    return batch.draws


def without_last_view(batch: Batch, *, of: str) -> tuple[Batch, Tensor]:
    """The batch for the base method, and the last view, which is for the wrapper."""
    if len(batch.views) <= batch.n_global:
        raise ValueError(
            f"{of} uses the last view itself: expected one more than the {batch.n_global} global views of its base, "
            f"got {len(batch.views)}"
        )
    draws = None if batch.draws is None else batch.draws[:-1]
    return replace(batch, views=list(batch.views[:-1]), draws=draws), batch.views[-1]


def add(terms: Terms, own: Terms) -> Terms:
    for name in own:
        if name in terms:
            raise ValueError(f"there is a term {name!r} already")
    return terms | own


def equal(a: Tensor, b: Tensor) -> Tensor:
    """1.0 where equal."""
    return torch.eq(a, b).float()
