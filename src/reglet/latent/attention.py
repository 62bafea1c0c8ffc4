"""Attention between the samples of a batch."""

from math import sqrt

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check


class Attention(nn.Module):
    """Every sample z_i looks at all samples of a context: the batch is the sequence.

        softmax(Q K^T / sqrt(d_k)) V W_o,    Q = z W_q,  K = c W_k,  V = c W_v

    inner: the width of Q, K and V over all heads together.
    dropout: of the attention weights.
    exclude_self: sample i of z does not see sample i of the context.

    Weights start as those of torch's MultiheadAttention.

    >>> Attention(8, inner=4, heads=2)(torch.zeros(3, 8), torch.zeros(5, 8)).shape
    torch.Size([3, 8])
    """

    def __init__(
        self, dim: int, *, inner: int, heads: int = 1, dropout: float = 0.0, exclude_self: bool = False
    ) -> None:
        super().__init__()
        check.whole(1, dim=dim, inner=inner, heads=heads)
        check.below_one(dropout=dropout)
        check.flag(exclude_self=exclude_self)
        if inner % heads:
            raise ValueError(f"inner, the width of attention, must be a multiple of heads, got {inner} and {heads}")
        self.heads, self.dropout, self.exclude_self = heads, dropout, exclude_self
        self.q, self.kv, self.out = nn.Linear(dim, inner), nn.Linear(dim, 2 * inner), nn.Linear(inner, dim)
        bound = sqrt(6 / (3 * inner + dim))  # Glorot, of Q, K and V as one matrix
        for projection in (self.q, self.kv):
            nn.init.uniform_(projection.weight, -bound, bound)
        for projection in (self.q, self.kv, self.out):
            nn.init.zeros_(projection.bias)

    def forward(self, z: Float[Tensor, "n d"], context: Float[Tensor, "m d"]) -> Float[Tensor, "n d"]:
        q, k, v = (self._by_head(x) for x in (self.q(z), *self.kv(context).chunk(2, dim=1)))
        seen = ~torch.eye(len(z), len(context), dtype=torch.bool, device=z.device) if self.exclude_self else None
        mixed = F.scaled_dot_product_attention(q, k, v, seen, self.dropout if self.training else 0.0)
        out: Tensor = self.out(mixed[0].transpose(0, 1).flatten(1))
        return out

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.heads, -1)).transpose(0, 1)[None]
