"""Balanced contrastive learning.  Zhu et al., CVPR 2022, arXiv:2207.09052."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from reglet.tails.logit_adjustment import LogitAdjustment
from reglet.types import Scalar, Terms, total


def balanced_contrast(
    u: Float[Tensor, "v n d"], y: Int[Tensor, "n"], prototypes: Float[Tensor, "k d"], *, temperature: float = 0.1
) -> Scalar:
    """Supervised contrast in which every class weighs the same in the denominator, and is there by its prototype.

        - mean_i mean_{p in P(i)} log( exp(u_i.u_p / T) / sum_c mean_{k in A_c \\ i} exp(u_i.u_k / T) )

    A_c are the embeddings of class c, all views, and its prototype; P(i) = A_{y_i} \\ i.  All rows are normalized here.
    As in the authors' code the anchor is left out of its own class's mean; the paper's equation 5 divides by its whole
    size.
    """
    v, n, _ = u.shape
    if v < 2 or len(y) != n:
        raise ValueError(
            f"expected at least two views (v, n, d) and n labels, got {tuple(u.shape)} and {len(y)} labels"
        )
    if int(y.min()) < 0 or int(y.max()) >= len(prototypes):
        raise ValueError(
            f"labels are below the {len(prototypes)} prototypes, got values {int(y.min())}..{int(y.max())}"
        )
    with torch.autocast(u.device.type, enabled=False):
        rows = F.normalize(torch.cat([_wide(u).flatten(0, 1), _wide(prototypes)]), dim=1)
        label = torch.cat([y.long().repeat(v), torch.arange(len(prototypes), device=y.device)])
        logits = rows[: v * n] @ rows.T / temperature
        itself = torch.eye(v * n, len(rows), dtype=torch.bool, device=u.device)
        positive = (label[: v * n, None] == label) & ~itself
        size = label.bincount()[label] - positive.int()  # of k's class, without the anchor if it is of that class
        log_mean = (logits - size.clamp_min(1).log()).masked_fill(itself, -torch.inf).logsumexp(1)
        return (log_mean - (logits * positive).sum(1) / positive.sum(1)).mean()


class BCL(nn.Module):
    """alpha CE(logits + log pi, y) + beta balanced_contrast(u, y, prototypes).

    The authors classify one view and contrast two others; their prototypes are the classifier's weights after a small
    net of their own, `prototypes = mlp(head.weight)`, and u is the latents after another.

    alpha, beta, temperature: 1, 0.35 and 0.1, the defaults of the authors' code.

    With LatentDR, `LatentDR(dim, criterion=bcl)` has the adjusted cross-entropy in all of its terms, and
    `bcl.contrast(u, y, prototypes)` is added once, for the original latents.

    >>> bcl, y = BCL([90, 10, 5]), torch.tensor([0, 1, 2, 0])
    >>> sorted(bcl.terms(torch.randn(4, 3), y, torch.randn(2, 4, 8), torch.randn(3, 8)))
    ['contrast', 'cross_entropy']
    """

    def __init__(
        self, counts: Sequence[int] | Tensor, *, alpha: float = 1.0, beta: float = 0.35, temperature: float = 0.1
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"the temperature is positive, got {temperature}")
        self.adjustment = LogitAdjustment(counts)
        self.alpha, self.beta, self.temperature = alpha, beta, temperature

    def adjust(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return self.adjustment.adjust(logits)

    def contrast(self, u: Float[Tensor, "v n d"], y: Int[Tensor, "n"], prototypes: Float[Tensor, "k d"]) -> Scalar:
        """beta times the contrastive term."""
        return self.beta * balanced_contrast(u, y, prototypes, temperature=self.temperature)

    def terms(
        self,
        logits: Float[Tensor, "n k"],
        y: Int[Tensor, "n"],
        u: Float[Tensor, "v n d"],
        prototypes: Float[Tensor, "k d"],
    ) -> Terms:
        return {
            "cross_entropy": self.alpha * self.adjustment(logits, y),
            "contrast": self.contrast(u, y, prototypes),
        }

    def forward(
        self,
        logits: Float[Tensor, "n k"],
        y: Int[Tensor, "n"],
        u: Float[Tensor, "v n d"],
        prototypes: Float[Tensor, "k d"],
    ) -> Scalar:
        return total(self.terms(logits, y, u, prototypes))


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
