"""Logit adjustment and balanced softmax: the class prior, added to the logits while training.

Menon et al., ICLR 2021, arXiv:2007.07314; Ren et al., NeurIPS 2020, arXiv:2007.10740.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar


class LogitAdjustment(nn.Module):
    """CE(logits + tau log pi, y),  pi_c = n_c / sum n.  At test the logits are not adjusted.

    counts: training samples of each class.
    y: class indices, or rows of probabilities.

    `adjust` only changes the logits, for LatentDR and the other latent losses (`criterion=`).  `post_hoc` is the
    paper's other way: train with plain cross-entropy and subtract tau log pi at test.

    >>> LogitAdjustment([90, 10])(torch.zeros(1, 2), torch.tensor([1]))
    tensor(2.3026)
    """

    log_prior: Tensor

    def __init__(self, counts: Sequence[int] | Tensor, *, tau: float = 1.0) -> None:
        super().__init__()
        check.finite(tau=tau)
        n = _checked(counts)
        self.tau = tau
        self.register_buffer("log_prior", (n / n.sum()).log().float())

    def adjust(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """logits + tau log pi"""
        return logits + self._prior_of(logits)

    def post_hoc(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """logits - tau log pi"""
        return logits - self._prior_of(logits)

    def _prior_of(self, logits: Tensor) -> Float[Tensor, "k"]:
        check.tensor("logits", logits, None, None)
        if logits.shape[1] != len(self.log_prior):
            raise ValueError(f"counts are of {len(self.log_prior)} classes, logits of {logits.shape[1]}")
        return self.tau * self.log_prior

    def forward(self, logits: Float[Tensor, "n k"], y: Tensor) -> Scalar:
        with no_autocast(logits):
            adjusted = self.adjust(at_least_float32(logits))
            check.labels(y, n=len(logits), classes=logits.shape[1])
            value = F.cross_entropy(adjusted, y.to(adjusted.dtype) if y.is_floating_point() else y.long())
        check.no_overflow(type(self).__name__, {"the loss": value}, logits)
        return value


def _checked(counts: Sequence[int] | Tensor) -> Tensor:
    """Training samples of at least two classes, each with some, in float64."""
    expected = "counts must be training samples of at least two classes, each with some"
    try:
        n = torch.as_tensor(counts, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{expected}; got {counts!r}") from None
    good = (n > 0) & n.isfinite()
    if n.ndim != 1 or len(n) < 2 or not bool(good.all()):
        shown = n.tolist() if n.numel() <= 20 else f"{(~good).sum().item()} classes without any"
        raise ValueError(f"{expected}; got {shown}")
    return n


class BalancedSoftmax(LogitAdjustment):
    """CE(logits + log n_c, y): logit adjustment with tau = 1, because the softmax ignores the constant log sum n.

    >>> logits, y = torch.zeros(1, 2), torch.tensor([0])
    >>> round(BalancedSoftmax([90, 10])(logits, y).item(), 4)  # -log 0.9
    0.1054
    """

    def __init__(self, counts: Sequence[int] | Tensor) -> None:
        super().__init__(counts, tau=1.0)
