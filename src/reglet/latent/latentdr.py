"""LatentDR: Improving Model Generalization Through Sample-Aware Latent Degradation and Restoration.  Liu et al."""

import warnings
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.latent.attention import Layer, Norm, SampleAttention
from reglet.latent.classify import (
    Criterion,
    Head,
    checked_criterion,
    cross_entropy,
    finished,
    in_precision_of,
    log_probabilities,
    targets_for,
)
from reglet.latent.gaussian import GaussianNoise
from reglet.latent.pool import RandomPool
from reglet.precision import at_least_float32, no_autocast
from reglet.schedules import Scheduled, Weight, checked_weight
from reglet.types import Scalar, Terms, total

Degrade = Literal["attention", "pool", "gaussian"]
Parts = Literal["D+R", "D", "R"]
LEAST_POOL_WIDTH = 16


class LatentDR(Scheduled, nn.Module):
    """Latents are degraded by mixing them with the batch, restored, and classified three times (equation 5):

        L = CE(g(z), y) + CE(g(z_d), ybar) + CE(g(z_r), y),    z_d = D(z),  z_r = R(z_d, z),  ybar = 1/B sum_i y_i

    D is a transformer layer over the batch, or the same with random pooling in place of attention, or it adds N(0, 1).
    R attends from z_d to z.  All terms train the encoder, the classifier, D and R.  At inference none of this is used.
    The degraded term cannot fall below the entropy of ybar (`reglet.latent.classify.entropy`).

    degrade: "attention" (the paper's SA), "pool", or "gaussian" (its control).
    parts: "D+R"; "D" has no restored term; "R" has no degraded term, and R(z, z) unless `degrade` is "gaussian", which
        is BatchFormer up to its widths.
    original, degraded, restored: weights of the three terms, 1 in the paper; each may be a schedule.
    inner, ff: widths of attention and feed-forward.  The paper has dim = 2048, and dim/4 for both; with "pool" dim/32
        and dim/8.  At dim = 128 that would be an attention of width 4, too narrow to tell samples apart.  So with
        "pool" `inner` is at least 16, or dim if that is smaller.
    heads: 4, or 1 if `inner` is below 32.
    norm: "post" (equation 12), "pre", or "eq13" (equation 13 as printed); see `Layer`.
    pool_size: see `RandomPool`.  exclude_self: D mixes sample i only with the others.
    classifier: a second classifier, for z_d and z_r only (83.7 instead of 86.3 % on PACS in the paper).
    criterion: balanced softmax or logit adjustment, in all three terms.

    Labels may be soft.  Each rank mixes its own samples and averages their labels.  D and R compute in the precision of
    their weights, whatever autocast says.  A batch of one has nothing to mix: it gives a warning and the original term
    only.  The paper halves the learning rate of the method that LatentDR is added to.

    >>> import torch
    >>> dr, head = LatentDR(dim=8), nn.Linear(8, 3)
    >>> sorted(dr.terms(torch.randn(4, 8), torch.tensor([0, 1, 2, 0]), head))
    ['degraded', 'original', 'restored']
    """

    def __init__(
        self,
        dim: int,
        *,
        original: Weight = 1.0,
        degraded: Weight = 1.0,
        restored: Weight = 1.0,
        degrade: Degrade = "attention",
        parts: Parts = "D+R",
        inner: int | None = None,
        ff: int | None = None,
        heads: int | None = None,
        dropout: float = 0.5,
        norm: Norm = "post",
        pool_size: int = 3,
        exclude_self: bool = False,
        sigma: float = 1.0,
        classifier: nn.Module | None = None,
        criterion: Criterion | None = None,
    ) -> None:
        super().__init__()
        check.whole(1, dim=dim)
        check.choice("degrade", degrade, get_args(Degrade))
        check.choice("parts", parts, get_args(Parts))
        pooled = degrade == "pool"
        inner = _inner(dim, pooled=pooled) if inner is None else inner
        ff = max(1, dim // (8 if pooled else 4)) if ff is None else ff
        check.whole(1, inner=inner, ff=ff, pool_size=pool_size)
        check.choice("norm", norm, get_args(Norm))
        check.below_one(dropout=dropout)
        check.flag(exclude_self=exclude_self)
        check.not_negative(sigma=sigma)
        heads = (4 if inner >= 32 and inner % 4 == 0 else 1) if heads is None else heads
        check.whole(1, heads=heads)
        self.original, self.degraded = checked_weight("original", original), checked_weight("degraded", degraded)
        self.restored = checked_weight("restored", restored)
        self.dim, self.parts, self.classifier, self.criterion = dim, parts, classifier, checked_criterion(criterion)

        def attention(exclude: bool) -> SampleAttention:
            return SampleAttention(dim, inner=inner, heads=heads, dropout=dropout, exclude_self=exclude)

        self.degradation: Layer | GaussianNoise | None = None
        if degrade == "gaussian":
            self.degradation = GaussianNoise(dim, sigma)
        elif "D" in parts:
            mix = RandomPool(pool_size, exclude_self=exclude_self) if pooled else attention(exclude_self)
            self.degradation = Layer(dim, mix, ff=ff, dropout=dropout, norm=norm)
        self.restoration = Layer(dim, attention(False), ff=ff, dropout=dropout, norm=norm) if "R" in parts else None

    def degrade(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """z_d = D(z); z itself if there is no degradation."""
        if isinstance(self.degradation, GaussianNoise):
            return self.degradation(z)
        if self.degradation is None:
            return z
        out: Tensor = self.degradation(z, z)
        return out

    def restore(self, z_d: Float[Tensor, "n d"], z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """z_r = R(z_d, z): queries from z_d, keys and values from z."""
        if self.restoration is None:
            raise ValueError(f"this LatentDR has parts={self.parts!r}, which has no restoration")
        out: Tensor = self.restoration(z_d, z)
        return out

    def forward(self, z: Tensor, y: Tensor, head: Head) -> Scalar:
        return total(self.terms(z, y, head))

    def terms(self, z: Tensor, y: Tensor, head: Head) -> Terms:
        check.tensor("the latents of LatentDR", z, None, self.dim)
        names = ["degraded"] * ("D" in self.parts) + ["restored"] * ("R" in self.parts)
        if len(z) == 1:
            warnings.warn("LatentDR got a batch of one, which has nothing to mix: only the original term", stacklevel=2)
            (log_p,) = log_probabilities(head, z, criterion=self.criterion)
            found = {"original": cross_entropy(log_p, targets_for(y, log_p))}
            found |= dict.fromkeys(names, log_p.new_zeros(()))
        else:
            made = self._made(z)
            log_p, *others = self._log_probabilities(head, z, [made[name] for name in names])
            targets = targets_for(y, log_p)
            found = {"original": cross_entropy(log_p, targets)}
            for name, log_q in zip(names, others, strict=True):
                # Every row has the target ybar, and cross-entropy is linear, so the mean of log q is enough.
                mean = -(targets.mean(0) * log_q.mean(0)).sum() if name == "degraded" else cross_entropy(log_q, targets)
                found[name] = mean
        return finished("LatentDR", {name: self.now(name) * value for name, value in found.items()}, z)

    def _made(self, z: Tensor) -> dict[str, Tensor]:
        """The latents of all terms except the first."""
        with no_autocast(z):
            z = in_precision_of(self, z, at_least_float32(z))
            z_d = self.degrade(z)
            made = {"degraded": z_d}
            return made if self.restoration is None else made | {"restored": self.restore(z_d, z)}

    def _log_probabilities(self, head: Head, z: Tensor, made: list[Tensor]) -> list[Tensor]:
        if self.classifier is None:
            return log_probabilities(head, z, *made, criterion=self.criterion)
        own = log_probabilities(self.classifier, *made, criterion=self.criterion)
        return log_probabilities(head, z, criterion=self.criterion) + own


def _inner(dim: int, *, pooled: bool) -> int:
    """The default width of attention: a quarter of dim; with "pool" dim/32, but not below LEAST_POOL_WIDTH."""
    return max(dim // 32, min(dim, LEAST_POOL_WIDTH)) if pooled else max(1, dim // 4)
