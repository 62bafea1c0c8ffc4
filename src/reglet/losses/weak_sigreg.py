"""Weak-SIGReg: the covariance of a sketch of the features should be I.  arXiv:2603.05924, kreasof-ai/sigreg (README).

    Y = (Z - mean) S^T,  S (k, d) of normal numbers, S_ij ~ N(0, 1/d), where d > k;  Y = Z - mean elsewhere
    L = | Y^T Y / (n - 1) - I |_F

It keeps only SIGReg's second moments.  The authors put it after every block, on the mean over the tokens of each sample
(`on="pooled"`), with weight 0.1 and k = 64 (notebooks of cifar100).  S S^T is I only on average, so sketched white
features have a loss of about k / sqrt(d).  The README adds 1e-6 to n - 1.  It draws S anew in every call; so does this
file, from (seed, step).  In eval mode S stays the same.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.dist import Group
from reglet.losses.base import OnViews
from reglet.losses.product import product
from reglet.losses.slices import Slices
from reglet.types import Scalar, Terms


def _sketched(z: Float[Tensor, "v n d"], sketch: Float[Tensor, "k d"] | None) -> Scalar:
    """The mean over views of |cov(z S^T) - I|_F; without a sketch, of |cov(z) - I|_F."""
    y = z - z.mean(dim=1, keepdim=True)
    if sketch is not None:
        y = torch.stack([product(view, sketch.T) for view in y])
    cov = torch.stack([product(view.T, view) for view in y]) / (z.shape[1] - 1)
    apart = cov - torch.eye(cov.shape[1], dtype=z.dtype, device=z.device)
    # `sum` adds in pairs; `norm` would lose a digit over a million entries.  Clamped, so that 0 has no gradient.
    return apart.square().sum((1, 2)).clamp_min(torch.finfo(z.dtype).tiny).sqrt().mean()


class WeakSIGReg(OnViews):
    """
    slices: k, the rows of the sketch; the README's sketch_dim.

    >>> WeakSIGReg()(torch.zeros(8, 4)).item()  # nothing varies: |I|_F of four features
    2.0
    """

    least_views = 1

    def __init__(
        self,
        *,
        slices: int = 64,
        seed: int = 0,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        self.slices = Slices(slices, shared=True, seed=seed, unit=False)

    def compute(self, z: Float[Tensor, "v n d"], n_global: int) -> Terms:
        drawn = self.slices.next(z)
        sketched = z.shape[2] > self.slices.count
        sketch = torch.cat([part.clone() for part in drawn.chunks(drawn.count)]) if sketched else None
        return {"weak_sigreg": _sketched(z, sketch)}
