"""BatchFormer.  Hou, Yu and Tao, CVPR 2022, arXiv:2203.01522."""

from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.latent.attention import Layer, SampleAttention
from reglet.latent.classify import (
    Criterion,
    Head,
    checked_criterion,
    cross_entropy,
    finished,
    in_precision_of,
    log_probabilities,
    targets_for,
)
from reglet.precision import no_autocast
from reglet.types import Scalar, Terms, total


class BatchFormer(nn.Module):
    """A transformer layer over the batch.  The classifier sees the latents with and without it:

        CE(g([z; BF(z)]), [y; y]) = 1/2 CE(g(z), y) + 1/2 CE(g(BF(z)), y)

    As in the authors' code: 4 heads, a feed-forward net of width dim, dropout 0.5, layer norm after each residual.  The
    halves come from the mean over all 2B rows.  At inference none of this is used.

    >>> import torch
    >>> former, head = BatchFormer(8), nn.Linear(8, 3)
    >>> sorted(former.terms(torch.randn(4, 8), torch.tensor([0, 1, 2, 0]), head))
    ['original', 'transformed']
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 4,
        ff: int | None = None,
        dropout: float = 0.5,
        criterion: Criterion | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.criterion = dim, checked_criterion(criterion)
        attention = SampleAttention(dim, inner=dim, heads=heads, dropout=dropout)
        self.layer = Layer(dim, attention, ff=dim if ff is None else ff, dropout=dropout)

    def transform(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """BF(z)"""
        out: Tensor = self.layer(z, z)
        return out

    def terms(self, z: Tensor, y: Tensor, head: Head) -> Terms:
        check.tensor("the latents of BatchFormer", z, None, self.dim)
        with no_autocast(z):
            transformed = self.transform(in_precision_of(self, z, z))
        log_p, log_q = log_probabilities(head, z, transformed, criterion=self.criterion)
        targets = targets_for(y, log_p)
        terms = {"original": cross_entropy(log_p, targets) / 2, "transformed": cross_entropy(log_q, targets) / 2}
        return finished("BatchFormer", terms, z)

    def forward(self, z: Tensor, y: Tensor, head: Head) -> Scalar:
        return total(self.terms(z, y, head))
