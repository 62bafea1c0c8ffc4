"""A transformer layer over the samples of a batch, around any way of mixing them."""

from collections.abc import Callable
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.precision import at_least_float32

Norm = Literal["post", "pre", "eq13"]


class Layer(nn.Module):
    """`mix(z, context)` and a feed-forward net, each with its residual, in one of three placements of layer norm:

        post    z' = LN(z + mix(z)),    LN(z' + FF(z'))     LatentDR's equation 12: domains, medical images
        pre     z' = z + mix(LN(z)),    z' + FF(LN(z'))     what is usually called pre-norm
        eq13    z' = LN(z) + mix(z),    LN(z') + FF(z')     LatentDR's equation 13 as it is printed: long tails

    In "pre" the context passes the same norm as z.  Dropout stands where torch's TransformerEncoderLayer has it: on
    both outputs before the residual and inside FF = Linear(dim, ff) - ReLU - Linear(ff, dim).
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
            # Layer norm and attention square the latents.  In "eq13" no norm follows the mixing: a gradient through
            # both layers of LatentDR holds their fifth power.
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
