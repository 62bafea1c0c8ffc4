"""Logit adjustment and balanced softmax: the class prior, added to the logits while training.

Menon et al., ICLR 2021, arXiv:2007.07314; Ren et al., NeurIPS 2020, arXiv:2007.10740.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.types import Scalar


class LogitAdjustment(nn.Module):
    """CE(logits + tau log pi, y),  pi_c = n_c / sum n.  Plain logits at test.

    counts: training samples of each class.
    y: class indices, or rows of probabilities.

    `adjust` is the first half alone, for LatentDR and the other latent losses (`criterion=`).  `post_hoc` is the
    paper's other way: train with plain cross-entropy and subtract tau log pi at test.

    >>> LogitAdjustment([90, 10])(torch.zeros(1, 2), torch.tensor([1]))
    tensor(2.3026)
    """

    log_prior: Tensor

    def __init__(self, counts: Sequence[int] | Tensor, *, tau: float = 1.0) -> None:
        super().__init__()
        n = torch.as_tensor(counts, dtype=torch.float64)
        if n.ndim != 1 or len(n) < 2 or not bool((n > 0).all()):
            shown = n.tolist() if n.numel() <= 20 else f"{(~(n > 0)).sum().item()} classes without any"
            raise ValueError(f"expected training samples of at least two classes, each with some; got {shown}")
        self.tau = tau
        self.register_buffer("log_prior", (n / n.sum()).log().float())

    def adjust(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        if logits.shape[1] != len(self.log_prior):
            raise ValueError(f"counts are of {len(self.log_prior)} classes, logits of {logits.shape[1]}")
        return logits + self.tau * self.log_prior

    def post_hoc(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """logits - tau log pi"""
        return 2 * logits - self.adjust(logits)

    def forward(self, logits: Float[Tensor, "n k"], y: Tensor) -> Scalar:
        with torch.autocast(logits.device.type, enabled=False):
            wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
            return F.cross_entropy(self.adjust(wide), y)


class BalancedSoftmax(LogitAdjustment):
    """CE(logits + log n_c, y): logit adjustment with tau = 1, whose constant log sum n the softmax does not see."""

    def __init__(self, counts: Sequence[int] | Tensor) -> None:
        super().__init__(counts, tau=1.0)
