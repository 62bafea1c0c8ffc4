"""Embeds every view and compares them.  VISReg, LeJEPA, VICReg, Barlow Twins, SimCLR and SMI differ only in `loss`."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.projector import projector as visreg_projector
from reglet.backbones.protocol import dim_of
from reglet.losses.base import OnViews
from reglet.method import Batch, Method
from reglet.methods.crops import by_size
from reglet.types import Terms


class JointEmbedding(Method):
    """loss(projector(backbone(views))).

    Crops of one size share a forward, so batch norm sees them together.

    loss: any of `reglet.losses`.  Give it `gather=True` to train on several ranks as on one.
    projector: by default VISReg's 2048-2048-256.

    >>> from reglet.backbones import ConvNet
    >>> from reglet.losses import VICRegLoss
    >>> method = JointEmbedding(ConvNet(), VICRegLoss())
    >>> sorted(method(Batch(torch.randn(2, 4, 3, 16, 16).unbind(), n_global=2)))
    ['covariance', 'invariance', 'variance']
    """

    def __init__(self, backbone: nn.Module, loss: OnViews, *, projector: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone, self.loss = backbone, loss
        self.projector = visreg_projector(dim_of(backbone)) if projector is None else projector
        self.observer: Callable[[Sequence[Tensor], Terms], None] | None = None  # sees the embeddings of a training step

    def forward(self, batch: Batch) -> Terms:
        return self.objective(self.embed(batch.views), n_global=batch.n_global)

    def embed(self, views: Sequence[Float[Tensor, "n c ..."]]) -> list[Float[Tensor, "n d"]]:
        """The embeddings that the loss compares, view by view."""
        return by_size(lambda x: self.projector(self.backbone(x)), views)

    @torch.compiler.disable(reason="view losses have their own kernels, and checks that read numbers")
    def objective(self, z: Sequence[Float[Tensor, "n d"]], *, n_global: int) -> Terms:
        """The loss of embeddings.  It is separate from `embed`, so that a batch may be embedded in parts."""
        with torch.autocast(z[0].device.type, enabled=False):  # statistics of a batch need float32
            terms = self.loss.terms(global_views=z[:n_global], local_views=z[n_global:] or None)
        if self.observer is not None and self.training:
            self.observer(z[:n_global], terms)
        return terms
