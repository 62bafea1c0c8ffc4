"""What every loss of two places asks of its tokens."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.precision import at_least_float32

Tokens = Float[Tensor, "n t d"]


def checked(z: Tensor, target: Tensor, *, any_width: bool = False) -> tuple[Tensor, Tensor]:
    """Tokens (n, t, d) of two places, place by place, in float32 at least.  any_width: they may differ in d."""
    check.tensor("z", z, None, None, None)
    check.tensor("target", target, *z.shape[:2], None if any_width else z.shape[2])
    z, target = at_least_float32(z), at_least_float32(target)
    return (z, target) if z.dtype == target.dtype else (z.double(), target.double())


def unit(y: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Vectors of length 1, in float32 at least.  eps as large as float32 wants it: the gradient of a vector of zeros is
    1e6 and not 1e12."""
    return F.normalize(at_least_float32(y), dim=-1, eps=1e-6)
