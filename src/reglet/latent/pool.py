"""Each sample becomes the mean of a few random samples of the batch."""

import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reglet import check
from reglet.latent.draws import moved, require_batch


@dataclass(frozen=True)
class RandomPool:
    """z_i -> 1/m sum_{j in Omega_i} z_j, with Omega_i a random subset of m samples of the batch.

    LatentDR (equation 6) does not say how large Omega is; 3 is PoolFormer's kernel.  The closer m is to the size of the
    batch, the more similar are the means.  If the batch has fewer than m samples to pool, all are pooled, with a
    warning.

    exclude_self: Omega_i never holds i.

    >>> RandomPool(2)(torch.zeros(5, 8), torch.zeros(5, 8)).shape
    torch.Size([5, 8])
    """

    size: int = 3
    exclude_self: bool = False

    def __post_init__(self) -> None:
        check.whole(1, size=self.size)
        check.flag(exclude_self=self.exclude_self)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Int64[Tensor, "n m"]:
        """Omega_i in row i."""
        check.whole(1, n=n)
        most = n - self.exclude_self
        if most < 1:
            raise ValueError(f"a batch of {n} leaves nothing to pool with exclude_self={self.exclude_self}")
        if self.size > most:
            warnings.warn(
                f"pool size {self.size} is above the {most} samples there are to pool: all are pooled", stacklevel=2
            )
        lots = torch.rand(n, n, generator=generator, device="cpu")
        if self.exclude_self:
            lots.fill_diagonal_(-1)
        return lots.topk(min(self.size, most), dim=1).indices

    def apply(self, x: Float[Tensor, "n d"], p: Int64[Tensor, "b m"]) -> Float[Tensor, "n d"]:
        require_batch(p, x, None, None)
        weights = x.new_zeros(len(x), len(x)).scatter(1, moved(p, x), 1 / p.shape[1])
        return weights @ x

    def __call__(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Pools `context`.  LatentDR's layer calls it in place of attention."""
        check.tensor("context", context, None, None)
        return self.apply(context, self.draw(len(context)))
