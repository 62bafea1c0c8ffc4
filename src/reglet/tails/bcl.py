"""Balanced contrastive learning.  Zhu et al., CVPR 2022, arXiv:2207.09052."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from reglet import check
from reglet.precision import at_least_float32, no_autocast
from reglet.schedules import Scheduled, Weight, checked_weight
from reglet.tails.logit_adjustment import LogitAdjustment
from reglet.types import Scalar, Terms, total


def balanced_contrast(
    u: Float[Tensor, "v n d"], y: Int[Tensor, "n"], prototypes: Float[Tensor, "k d"], *, temperature: float = 0.1
) -> Scalar:
    """Supervised contrast.  In the denominator every class has the same weight, and at least its prototype.

        - mean_i mean_{p in P(i)} log( exp(u_i.u_p / T) / sum_c mean_{k in A_c \\ i} exp(u_i.u_k / T) )

    A_c are the embeddings of class c, all views, and its prototype; P(i) = A_{y_i} \\ i.  All rows are normalized here.
    As in the authors' code, the mean over the anchor's own class leaves the anchor out.  The paper's equation 5 divides
    by the size of the whole class.

    >>> u, y = torch.randn(2, 6, 4), torch.tensor([0, 0, 0, 0, 1, 1])
    >>> balanced_contrast(u, y, prototypes=torch.randn(2, 4)).shape
    torch.Size([])
    """
    check.positive(temperature=temperature)
    check.tensor("u", u, None, None, None)
    check.tensor("prototypes", prototypes, None, u.shape[2])
    v, n, _ = u.shape
    if v < 2:
        raise ValueError(f"expected at least two views (v, n, d), got {tuple(u.shape)}")
    check.labels(y, n=n, classes=len(prototypes), soft=False)
    with no_autocast(u):
        wide = torch.cat([at_least_float32(u).flatten(0, 1), at_least_float32(prototypes)])
        rows = normalized(wide)
        label = torch.cat([y.long().repeat(v), torch.arange(len(prototypes), device=y.device)])
        logits = rows[: v * n] @ rows.T / temperature
        itself = torch.eye(v * n, len(rows), dtype=torch.bool, device=u.device)
        positive = (label[: v * n, None] == label) & ~itself
        members = logits.new_zeros(len(prototypes)).index_add_(0, label, logits.new_ones(len(rows)))
        size = members[label] - positive.to(members)  # of k's class, without the anchor if it is of that class
        log_mean = (logits - size.clamp_min(1).log()).masked_fill(itself, -torch.inf).logsumexp(1)
        value = (log_mean - (logits * positive).sum(1) / positive.sum(1)).mean()
    check.no_overflow("balanced_contrast", {"the loss": value}, u, prototypes)
    return value


def normalized(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Rows of length 1.  Large rows are scaled down first, because their squares would overflow."""
    return F.normalize(rows / rows.detach().abs().amax(1, keepdim=True).clamp_min(1), dim=1)


class BCL(Scheduled, nn.Module):
    """cross_entropy CE(logits + log pi, y) + contrast balanced_contrast(u, y, prototypes).

    The authors classify one view and contrast two others.  Their prototypes are the classifier's weights after a small
    net, `prototypes = mlp(head.weight)`, and u are the latents after another.

    cross_entropy, contrast: the weights, the paper's alpha and beta; each may be a schedule.  1, 0.35 and the
        temperature of 0.1 are the defaults of the authors' code.

    With LatentDR, `LatentDR(dim, criterion=bcl)` has the adjusted cross-entropy in all of its terms, and
    `bcl.contrastive(u, y, prototypes)` is added once, for the original latents.

    >>> bcl, y = BCL([90, 10, 5]), torch.tensor([0, 1, 2, 0])
    >>> sorted(bcl.terms(torch.randn(4, 3), y, torch.randn(2, 4, 8), torch.randn(3, 8)))
    ['contrast', 'cross_entropy']
    """

    def __init__(
        self,
        counts: Sequence[int] | Tensor,
        *,
        cross_entropy: Weight = 1.0,
        contrast: Weight = 0.35,
        temperature: float = 0.1,
    ) -> None:
        super().__init__()
        check.positive(temperature=temperature)
        self.adjustment, self.temperature = LogitAdjustment(counts), temperature
        self.cross_entropy = checked_weight("cross_entropy", cross_entropy)
        self.contrast = checked_weight("contrast", contrast)

    def adjust(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return self.adjustment.adjust(logits)

    def contrastive(self, u: Float[Tensor, "v n d"], y: Int[Tensor, "n"], prototypes: Float[Tensor, "k d"]) -> Scalar:
        """The contrastive term, weighted."""
        return self.now("contrast") * balanced_contrast(u, y, prototypes, temperature=self.temperature)

    def terms(
        self,
        logits: Float[Tensor, "n k"],
        y: Int[Tensor, "n"],
        u: Float[Tensor, "v n d"],
        prototypes: Float[Tensor, "k d"],
    ) -> Terms:
        return {
            "cross_entropy": self.now("cross_entropy") * self.adjustment(logits, y),
            "contrast": self.contrastive(u, y, prototypes),
        }

    def forward(
        self,
        logits: Float[Tensor, "n k"],
        y: Int[Tensor, "n"],
        u: Float[Tensor, "v n d"],
        prototypes: Float[Tensor, "k d"],
    ) -> Scalar:
        return total(self.terms(logits, y, u, prototypes))
