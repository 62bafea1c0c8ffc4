"""CutMix.  Yun et al., ICCV 2019, arXiv:1905.04899."""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reglet import check
from reglet.latent.draws import beta, moved, require_batch
from reglet.latent.mixup import interpolate, soft_labels


class Cut(NamedTuple):
    """The draw of CutMix, in shares of the image, so that it fits any size.

    >>> draw = CutMix().draw(4)
    >>> sorted(draw.partner.tolist()), 0 <= draw.lam <= 1
    ([0, 1, 2, 3], True)
    """

    lam: float  # before the box is rounded to pixels and clipped at the border; 1 if nothing is cut
    centre: tuple[float, float]  # (y, x) in [0, 1)
    partner: Int64[Tensor, "n"]  # a permutation of the batch


@dataclass(frozen=True)
class CutMix:
    """Pastes a box of the partner's pixels.  Labels are mixed by area.

    lam ~ Beta(alpha, alpha), one for the batch.  The box is sqrt(1 - lam) (H, W), with a centre uniform over the image,
    clipped at the border.  The label keeps 1 - area / (H W), with the area after rounding and clipping, as in the
    authors' code.  prob: how often a batch is cut (0.5 in their CIFAR runs, 1 in their ImageNet runs).

    >>> cutmix = CutMix()
    >>> p = cutmix.draw(4, torch.Generator().manual_seed(0))
    >>> x, y = cutmix.mix(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]), p, num_classes=3)
    >>> y.shape
    torch.Size([4, 3])
    """

    alpha: float = 1.0
    prob: float = 1.0

    def __post_init__(self) -> None:
        check.positive(alpha=self.alpha)
        check.probability(prob=self.prob)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Cut:
        """Takes the same number of random values whether or not the batch is cut."""
        check.whole(1, n=n)
        lam = float(beta(self.alpha, 1, generator))
        y, x, coin = torch.rand(3, generator=generator, dtype=torch.float64, device="cpu").tolist()
        return Cut(
            lam=lam if coin < self.prob else 1.0,
            centre=(y, x),
            partner=torch.randperm(n, generator=generator, device="cpu"),
        )

    def apply(self, x: Float[Tensor, "n c h w"], p: Cut) -> Float[Tensor, "n c h w"]:
        require_batch(p.partner, x, None, None, None, None)
        top, bottom, left, right = box(p, height=x.shape[2], width=x.shape[3])
        out = x.clone()
        out[:, :, top:bottom, left:right] = x[moved(p.partner, x), :, top:bottom, left:right]
        return out

    def mix(
        self, x: Float[Tensor, "n c h w"], y: Tensor, p: Cut, *, num_classes: int
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n k"]]:
        """Images and their labels, mixed alike.  `y` holds class indices (n,) or soft labels (n, num_classes)."""
        p = p._replace(partner=moved(p.partner, x))
        mixed, kept = self.apply(x, p), kept_area(p, height=x.shape[2], width=x.shape[3])
        return mixed, interpolate(soft_labels(y, num_classes=num_classes), p.partner, lam=kept)


def box(p: Cut, *, height: int, width: int) -> tuple[int, int, int, int]:
    """(top, bottom, left, right) of the pasted pixels, end exclusive."""
    top, bottom = _span(p.centre[0], sqrt(1 - p.lam), height)
    left, right = _span(p.centre[1], sqrt(1 - p.lam), width)
    return top, bottom, left, right


def kept_area(p: Cut, *, height: int, width: int) -> float:
    """The share of the image, and so of the label, that is kept."""
    top, bottom, left, right = box(p, height=height, width=width)
    return 1 - (bottom - top) * (right - left) / (height * width)


def _span(centre: float, side: float, size: int) -> tuple[int, int]:
    half = int(side * size) // 2  # as in the authors' code: an unclipped box has an even side
    middle = int(centre * size)
    return max(middle - half, 0), min(middle + half, size)
