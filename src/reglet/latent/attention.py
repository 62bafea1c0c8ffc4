"""A transformer layer over the samples of a batch, and the attention between them."""

from collections.abc import Callable
from math import sqrt
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.precision import at_least_float32


class SampleAttention(nn.Module):
    """Every sample z_i attends to all samples of a context.  The batch is the sequence.

        softmax(Q K^T / sqrt(d_k)) V W_o,    Q = z W_q,  K = c W_k,  V = c W_v

    inner: the width of Q, K and V, over all heads together.
    dropout: of the attention weights.
    exclude_self: sample i of z does not see sample i of the context.

    Weights are initialized as in torch's MultiheadAttention.

    >>> SampleAttention(8, inner=4, heads=2)(torch.zeros(3, 8), torch.zeros(5, 8)).shape
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


Norm = Literal["post", "pre", "eq13"]


class Layer(nn.Module):
    """`mix(z, context)` and a feed-forward net, each with its residual.  Layer norm has one of three places:

        post    z' = LN(z + mix(z)),    LN(z' + FF(z'))     LatentDR's equation 12: domains, medical images
        pre     z' = z + mix(LN(z)),    z' + FF(LN(z'))     the usual pre-norm
        eq13    z' = LN(z) + mix(z),    LN(z') + FF(z')     LatentDR's equation 13 as printed: long tails

    In "pre" the context gets the same norm as z.  Dropout is where torch's TransformerEncoderLayer has it: on both
    outputs before the residual, and inside FF = Linear(dim, ff) - ReLU - Linear(ff, dim).
    """

    def __init__(
        self, dim: int, mix: Callable[[Tensor, Tensor], Tensor], *, ff: int, dropout: float = 0.5, norm: Norm = "post"
    ) -> None:
        super().__init__()
        check.choice("norm", norm, get_args(Norm))
        check.whole(1, dim=dim, ff=ff)
        check.below_one(dropout=dropout)
        self.mix, self.norm = mix, norm
        self.ff = nn.Sequential(nn.Linear(dim, ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(ff, dim))
        self.norm1, self.norm2, self.drop = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Dropout(dropout)

    def forward(self, z: Float[Tensor, "n d"], context: Float[Tensor, "m d"]) -> Float[Tensor, "n d"]:
        if check.readable(z):
            # Layer norm and attention square the latents.  In "eq13" no norm follows the mixing, so the gradient
            # through both layers of LatentDR contains their fifth power.
            power = 5 if self.norm == "eq13" else 2
            size = at_least_float32(z.detach()).pow(power).sum()
            check.no_overflow(type(self).__name__, {f"the latents to the power of {power}": size}, z)
        if self.norm == "pre":
            z = z + self.drop(self.mix(self.norm1(z), self.norm1(context)))
            return z + self.drop(self.ff(self.norm2(z)))
        if self.norm == "eq13":
            z = self.norm1(z) + self.drop(self.mix(z, context))
            return self.norm2(z) + self.drop(self.ff(z))
        z = self.norm1(z + self.drop(self.mix(z, context)))
        out: Tensor = self.norm2(z + self.drop(self.ff(z)))
        return out
