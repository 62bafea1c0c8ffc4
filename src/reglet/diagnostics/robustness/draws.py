"""Random numbers for each image, from its own generator.

They depend only on (seed, name, index of the image).  So an image gets the same corruption in any batch, and severities
differ only in strength.
"""

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


class Draws:
    """One generator for each image.  All are at the same place in their sequences.

    >>> a, b = Draws([3, 4], seed=0, name="snow"), Draws([4], seed=0, name="snow")
    >>> bool((a.normal(2)[1] == b.normal(2)[0]).all())
    True
    """

    def __init__(self, index: Sequence[int], *, seed: int, name: str) -> None:
        # numpy's, because torch's CPU generator takes only 32 bits, too few for a seed, a name and an index
        self.generators = [np.random.default_rng((seed, crc32(name.encode()), i)) for i in index]

    def normal(self, *shape: int) -> Float[Tensor, "n *shape"]:
        return torch.from_numpy(np.stack([g.standard_normal(shape, dtype=np.float32) for g in self.generators]))

    def uniform(self, low: float, high: float, *shape: int) -> Float[Tensor, "n *shape"]:
        u = torch.from_numpy(np.stack([g.random(shape, dtype=np.float32) for g in self.generators]))
        return low + (high - low) * u

    def poisson(self, rate: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        counts = [g.poisson(r) for g, r in zip(self.generators, rate.double().numpy(), strict=True)]
        return torch.from_numpy(np.stack(counts).astype(np.float32))
