"""Cross-entropy, with label smoothing if wanted.  Szegedy et al., CVPR 2016, arXiv:1512.00567, section 7."""

from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.latent.classify import (
    Criterion,
    Head,
    checked_criterion,
    cross_entropy,
    finished,
    log_probabilities,
    targets_for,
)
from reglet.types import Scalar, Terms, total


def smooth(targets: Float[Tensor, "n k"], *, eps: float) -> Float[Tensor, "n k"]:
    """(1 - eps) y + eps / classes.  Takes and returns rows of probabilities, so it combines with Mixup and LatentDR.

    >>> import torch
    >>> smooth(torch.tensor([[0.0, 1.0]]), eps=0.1)
    tensor([[0.0500, 0.9500]])
    """
    check.below_one(eps=eps)
    check.tensor("targets", targets, None, None)
    return (1 - eps) * targets + eps / targets.shape[1]


class CrossEntropy(nn.Module):
    """CE(g(z), y), the plain loss with the interface of a latent loss.

    label_smoothing: eps of the target (1 - eps) onehot + eps / classes; 0.1 in the paper.

    >>> import torch
    >>> z, y, head = torch.zeros(4, 8), torch.tensor([0, 1, 2, 0]), torch.nn.Linear(8, 3, bias=False)
    >>> round(CrossEntropy()(z, y, head).item(), 4)  # log 3
    1.0986
    """

    def __init__(self, *, label_smoothing: float = 0.0, criterion: Criterion | None = None) -> None:
        super().__init__()
        check.below_one(label_smoothing=label_smoothing)
        self.label_smoothing, self.criterion = label_smoothing, checked_criterion(criterion)

    def terms(self, z: Tensor, y: Tensor, head: Head) -> Terms:
        (log_p,) = log_probabilities(head, z, criterion=self.criterion)
        targets = smooth(targets_for(y, log_p), eps=self.label_smoothing)
        return finished("CrossEntropy", {"cross_entropy": cross_entropy(log_p, targets)}, z)

    def forward(self, z: Tensor, y: Tensor, head: Head) -> Scalar:
        return total(self.terms(z, y, head))
