"""Do ranks average over the same random directions?"""

from jaxtyping import Float
from torch import Tensor

from reglet.dist import concat_over_ranks


def same_slices(directions: Float[Tensor, "k d"]) -> bool:
    """Whether two ranks hold equal `directions`; every rank must call it, and all get the same answer.

    W ranks with directions of their own see W times as many.  A global `manual_seed` alike on all ranks, before
    directions are drawn from the global generator, takes that away without a sign.  On one rank: False.
    """
    every = concat_over_ranks(directions[None])
    return any(bool((every[i] == every[j]).all()) for i in range(len(every)) for j in range(i))
