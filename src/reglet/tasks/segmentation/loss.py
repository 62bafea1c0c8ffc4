"""What a segmentation is trained by."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from reglet.dist import sum_over_ranks
from reglet.tasks.segmentation.data import IGNORE
from reglet.types import Scalar


def pixel_loss(logits: Float[Tensor, "n classes h w"], masks: UInt8[Tensor, "n h w"], *, dice: float = 1.0) -> Scalar:
    """Cross-entropy of the pixels that count, and `dice` times the soft Dice loss, over the batch of all ranks."""
    entropy = F.cross_entropy(logits, masks.long(), ignore_index=IGNORE, reduction="sum")
    total, count = sum_over_ranks(torch.stack([entropy, (masks != IGNORE).sum().to(entropy.dtype)]))
    return total / count + dice * soft_dice(logits, masks) if dice else total / count


def soft_dice(logits: Float[Tensor, "n classes h w"], masks: UInt8[Tensor, "n h w"], *, eps: float = 1.0) -> Scalar:
    """Mean over the classes but the background of

        1 - (2 sum p g + eps) / (sum p + sum g + eps)

    with p the probability of the class, g one where it is and zero elsewhere, and sums over all pixels that count, of
    all ranks.  Milletari et al., 3DV 2016, arXiv:1606.04797, have squares in the denominator.
    """
    # Weights instead of a selection: a GPU would have to be waited for to know its size.
    counted = (masks != IGNORE).to(logits.dtype)[..., None]
    p = logits.softmax(1).movedim(1, -1) * counted
    g = F.one_hot(masks.masked_fill(masks == IGNORE, 0).long(), logits.shape[1]) * counted
    both, each = sum_over_ranks(torch.stack([(p * g).sum((0, 1, 2))[1:], (p + g).sum((0, 1, 2))[1:]]))
    return (1 - (2 * both + eps) / (each + eps)).mean()
