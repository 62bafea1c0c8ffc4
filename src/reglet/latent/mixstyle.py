"""MixStyle.  Zhou et al., ICLR 2021, arXiv:2104.02008."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor


class Styles(NamedTuple):
    """What MixStyle drew; lam = 1 everywhere where the batch is left alone."""

    lam: Float[Tensor, "n"]
    partner: Int64[Tensor, "n"]


@dataclass(frozen=True)
class MixStyle:
    """Channel means and deviations of two images, mixed; what is left after normalizing stays:

        (x - mu_i) / s_i * (lam_i s_i + (1 - lam_i) s_pi(i)) + lam_i mu_i + (1 - lam_i) mu_pi(i)

    mu and s = sqrt(var + eps) are over the places of each image and channel, lam_i ~ Beta(alpha, alpha) for each image,
    and no gradient passes through mu and s.  Labels stay.  As in the authors' code: var is the unbiased one, and a
    batch is changed with probability `prob`.

    partner: "random", a permutation; "crossdomain", one half of the batch with the other, for batches whose halves
        come from different domains.

    On the blocks of a network, in training alone:  `reglet.alter(model, ["layer1", "layer2"], MixStyle())`.

    >>> MixStyle()(torch.randn(4, 3, 8, 8)).shape
    torch.Size([4, 3, 8, 8])
    """

    prob: float = 0.5
    alpha: float = 0.1
    partner: Literal["random", "crossdomain"] = "random"
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not self.alpha > 0 or not 0 <= self.prob <= 1 or not self.eps > 0:
            raise ValueError(
                f"expected alpha > 0, prob in [0, 1] and eps > 0, got {self.alpha}, {self.prob} and {self.eps}"
            )
        if self.partner not in ("random", "crossdomain"):
            raise ValueError(f"partner is random or crossdomain, got {self.partner!r}")

    def draw(self, n: int, generator: torch.Generator | None = None) -> Styles:
        """Takes the same number of random values whether or not the batch is changed."""
        seed = int(torch.randint(2**63 - 1, (), generator=generator))
        lam = torch.from_numpy(np.random.default_rng(seed).beta(self.alpha, self.alpha, n))
        changed = bool(torch.rand((), generator=generator) < self.prob)
        return Styles(lam if changed else torch.ones_like(lam), self._partners(n, generator))

    def apply(self, x: Float[Tensor, "n c ..."], p: Styles) -> Float[Tensor, "n c ..."]:
        if len(p.partner) != len(x):
            raise ValueError(f"drawn for a batch of {len(p.partner)}, got one of {len(x)}")
        if x.ndim < 3 or x[0, 0].numel() < 2:
            raise ValueError(f"a style is of at least two places, (n, c, ...), got {tuple(x.shape)}")
        places = tuple(range(2, x.ndim))
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            h = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
            mu, s = h.mean(places, keepdim=True), (h.var(places, keepdim=True) + self.eps).sqrt()
            lam = p.lam.to(h).view(-1, *[1] * (x.ndim - 1))
            partner = p.partner.to(x.device)
            scale = torch.lerp(s[partner], s, lam) / s
            shift = torch.lerp(mu[partner], mu, lam) - mu * scale
        return x * scale.to(x.dtype) + shift.to(x.dtype)

    def __call__(self, x: Float[Tensor, "n c ..."]) -> Float[Tensor, "n c ..."]:
        """Draw from torch's own generator, and apply: what `reglet.alter` calls."""
        return self.apply(x, self.draw(len(x)))

    def _partners(self, n: int, generator: torch.Generator | None) -> Int64[Tensor, "n"]:
        shuffled = torch.randperm(n, generator=generator)
        if self.partner == "random":
            return shuffled
        return torch.cat([shuffled[shuffled >= n // 2], shuffled[shuffled < n // 2]])
