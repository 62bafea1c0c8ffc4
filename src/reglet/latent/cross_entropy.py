"""Cross-entropy, with smoothed labels where wanted.  Szegedy et al., CVPR 2016, arXiv:1512.00567, section 7."""

from jaxtyping import Float
from torch import Tensor, nn

from reglet.latent.classify import Criterion, Head, cross_entropy, log_probabilities, targets_for
from reglet.types import Scalar, Terms, total


def smooth(targets: Float[Tensor, "n k"], *, eps: float) -> Float[Tensor, "n k"]:
    """(1 - eps) y + eps / classes.  Rows of probabilities in and out, so that it goes with Mixup and LatentDR.

    >>> import torch
    >>> smooth(torch.tensor([[0.0, 1.0]]), eps=0.1)
    tensor([[0.0500, 0.9500]])
    """
    return (1 - eps) * targets + eps / targets.shape[1]


class CrossEntropy(nn.Module):
    """CE(g(z), y), the plain loss in the form of a latent loss.

    label_smoothing: eps of the target (1 - eps) onehot + eps / classes; the paper has 0.1.
    """

    def __init__(self, *, label_smoothing: float = 0.0, criterion: Criterion | None = None) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is in [0, 1), got {label_smoothing}")
        self.label_smoothing, self.criterion = label_smoothing, criterion

    def terms(self, z: Tensor, y: Tensor, head: Head) -> Terms:
        (log_p,) = log_probabilities(head, z, criterion=self.criterion)
        return {"cross_entropy": cross_entropy(log_p, smooth(targets_for(y, log_p), eps=self.label_smoothing))}

    def forward(self, z: Tensor, y: Tensor, head: Head) -> Scalar:
        return total(self.terms(z, y, head))
