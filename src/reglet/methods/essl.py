"""E-SSL.  Dangovski et al., ICLR 2022, "Equivariant contrastive learning", arXiv:2111.00899.

    L = L_base + lambda mean over k = 0..3 of CE(head(f(R^k x)), k)

x is a small crop of each image, and R is torch.rot90.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet.method import Batch, Method, MethodWrapper
from reglet.methods.view_features import Reader, add, without_last_view
from reglet.precision import at_least_float32, no_autocast
from reglet.schedules import Weight
from reglet.shares import SharedWeight
from reglet.types import Terms, total


def rotation_head(dim: int) -> nn.Sequential:
    """dim - dim - dim - 256 - 4, with LayerNorm after each layer except the last, and ReLU after the first two."""
    return nn.Sequential(
        nn.Linear(dim, dim),
        nn.LayerNorm(dim),
        nn.ReLU(),
        nn.Linear(dim, dim),
        nn.LayerNorm(dim),
        nn.ReLU(),
        nn.Linear(dim, 256),
        nn.LayerNorm(256),
        nn.Linear(256, 4),
    )


class ESSL(MethodWrapper):
    """The terms of `method` on all views except the last, and the rotation term on the last, which is square and small.

        view = View(96, ResizedCrop((0.05, 0.14)))
        policy = Policy((*two.views, view), n_global=2)

    weight: 0.4 in the paper, 1 in SER's code.
    layer: None for the backbone's features, or an intermediate layer.

    >>> from reglet import BarlowTwinsLoss, backbones, methods
    >>> net = backbones.ConvNet(widths=(8, 16), depth=1)
    >>> base = methods.JointEmbedding(net, BarlowTwinsLoss(), projector=backbones.projector(16, widths=(16, 8)))
    >>> views = [torch.rand(8, 3, 16, 16), torch.rand(8, 3, 16, 16), torch.rand(8, 3, 8, 8)]
    >>> sorted(ESSL(base)(Batch(views, n_global=2)))
    ['invariance', 'redundancy', 'rotation']
    """

    def __init__(
        self, method: Method, *, weight: Weight = 0.4, layer: int | str | None = None, example: Tensor | None = None
    ) -> None:
        super().__init__()
        self.method, self.balance = method, SharedWeight(weight)
        self.reader = Reader(method, layer, example=example)
        self.head = rotation_head(self.reader.dim)

    def forward(self, batch: Batch) -> Terms:
        given, x = without_last_view(batch, of="ESSL")
        if x.shape[2] != x.shape[3]:
            raise ValueError(f"quarter turns need square views, got {x.shape[2]} x {x.shape[3]}")
        terms: Terms = self.method(given)
        turned = torch.cat([torch.rot90(x, k, dims=(2, 3)) for k in range(4)])
        turn = torch.arange(len(turned), device=x.device) // len(x)
        logits = self.head(self.reader(self.backbone, turned))
        with no_autocast(logits):
            loss = F.cross_entropy(at_least_float32(logits), turn)
            return add(terms, {"rotation": self.balance(loss, total(terms), on=self.backbone.parameters())})
