"""MixStyle.  Zhou et al., ICLR 2021, arXiv:2104.02008."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reglet import check
from reglet.latent.draws import beta, moved, require_batch
from reglet.precision import at_least_float32, no_autocast

Partner = Literal["random", "crossdomain"]


class Styles(NamedTuple):
    """The draw of MixStyle.  lam is 1 everywhere if the batch is not changed.

    >>> draw = MixStyle().draw(4)
    >>> draw.lam.shape, sorted(draw.partner.tolist())
    (torch.Size([4]), [0, 1, 2, 3])
    """

    lam: Float[Tensor, "n"]
    partner: Int64[Tensor, "n"]


@dataclass(frozen=True)
class MixStyle:
    """Mixes the channel means and deviations of two images, and keeps the normalized image:

        (x - mu_i) / s_i * (lam_i s_i + (1 - lam_i) s_pi(i)) + lam_i mu_i + (1 - lam_i) mu_pi(i)

    mu and s = sqrt(var + eps) are over the places of each image and channel.  Each image has lam_i ~ Beta(alpha,
    alpha).  No gradient flows through mu and s.  Labels stay.  As in the authors' code, var is unbiased, and a batch is
    changed with probability `prob`.

    partner: "random" is a permutation; "crossdomain" mixes one half of the batch with the other, for halves from
        different domains.

    On the blocks of a network, in training only:  `reglet.alter(model, ["layer1", "layer2"], MixStyle())`.

    >>> MixStyle()(torch.randn(4, 3, 8, 8)).shape
    torch.Size([4, 3, 8, 8])
    """

    prob: float = 0.5
    alpha: float = 0.1
    partner: Partner = "random"
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check.positive(alpha=self.alpha, eps=self.eps)
        check.probability(prob=self.prob)
        check.choice("partner", self.partner, get_args(Partner))

    def draw(self, n: int, generator: torch.Generator | None = None) -> Styles:
        """Takes the same number of random values whether or not the batch is changed."""
        check.whole(1, n=n)
        lam = beta(self.alpha, n, generator)
        changed = bool(torch.rand((), generator=generator, device="cpu") < self.prob)
        return Styles(lam if changed else torch.ones_like(lam), self._partners(n, generator))

    def apply(self, x: Float[Tensor, "n c ..."], p: Styles) -> Float[Tensor, "n c ..."]:
        require_batch(p.partner, x, None, None, None, -1)
        if x[0, 0].numel() < 2:
            raise ValueError(f"MixStyle needs at least two places in each channel of (n, c, ...), got {tuple(x.shape)}")
        places = tuple(range(2, x.ndim))
        with torch.no_grad(), no_autocast(x):
            h = at_least_float32(x)
            mu, s = h.mean(places, keepdim=True), self._deviation(h)
            lam, partner = moved(torch.stack([p.lam.to(h.dtype), p.partner.to(h.dtype)]), x)  # in one copy
            lam, partner = lam.view(-1, *[1] * (x.ndim - 1)), partner.long()
            scale, shift = torch.lerp(s[partner], s, lam) / s, torch.lerp(mu[partner], mu, lam)
        # Not x scale + (shift - mu scale): both parts would be huge for an image with almost no contrast.
        mixed = ((at_least_float32(x) - mu) * scale + shift).to(x.dtype)
        check.no_overflow("MixStyle", {"the mixed image": mixed}, x)
        return mixed

    def _deviation(self, h: Float[Tensor, "n c ..."]) -> Float[Tensor, "n c ..."]:
        """sqrt(var + eps) over the places.  Scaled by a power of two, because large squares would overflow."""
        places = tuple(range(2, h.ndim))
        unit = h.abs().amax(places, keepdim=True).clamp_min(1).log2().ceil().exp2()
        return ((h / unit).var(places, keepdim=True) + self.eps / unit / unit).sqrt() * unit

    def __call__(self, x: Float[Tensor, "n c ..."]) -> Float[Tensor, "n c ..."]:
        """Draws from torch's own generator and applies the draw; `reglet.alter` calls it."""
        return self.apply(x, self.draw(len(x)))

    def _partners(self, n: int, generator: torch.Generator | None) -> Int64[Tensor, "n"]:
        shuffled = torch.randperm(n, generator=generator, device="cpu")
        if self.partner == "random":
            return shuffled
        return torch.cat([shuffled[shuffled >= n // 2], shuffled[shuffled < n // 2]])
