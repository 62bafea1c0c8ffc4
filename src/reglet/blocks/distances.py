"""How far a prediction is from its target.  All take (samples, tokens, features) and give a scalar."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.types import Scalar

Tokens = Float[Tensor, "b n d"]


class Standardize(nn.Module):
    """t(h) = (h - mean) / std over the tokens of each sample and feature (eq. 3), with the unbiased std of the code.

    sqrt(var + eps^2) instead of std + eps: a constant feature then has a finite gradient.
    """

    def __init__(self, *, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, h: Tokens) -> Tokens:
        centred = h - h.mean(1, keepdim=True)
        return centred * self._scale(centred)

    def gradient(self, h: Tokens, t: Tokens, g: Tokens) -> Tokens:
        """For h, where g is that for t = t(h): s (g - mean g - t <t, g> / (n - 1)) with s = 1 / sqrt(var + eps^2)."""
        along = (t * g).sum(1, keepdim=True) / (h.shape[1] - 1)
        return (g - g.mean(1, keepdim=True)).addcmul_(t, along, value=-1).mul_(self._scale(h - h.mean(1, keepdim=True)))

    def _scale(self, centred: Tokens) -> Float[Tensor, "b 1 d"]:
        var = centred.square().sum(1, keepdim=True) / (centred.shape[1] - 1)
        return torch.rsqrt(var + self.eps**2)


def l2(u: Tokens, v: Tokens) -> Scalar:
    """mean over tokens of ||u - v||_2: what the authors' code computes on standardized tokens."""
    return ((u - v).square().sum(-1) + 1e-12).sqrt().mean()


def mse(u: Tokens, v: Tokens) -> Scalar:
    return (u - v).square().mean()


def l1(u: Tokens, v: Tokens) -> Scalar:
    return (u - v).abs().mean()


def smooth_l1(u: Tokens, v: Tokens) -> Scalar:
    return F.smooth_l1_loss(u, v)


def cosine(u: Tokens, v: Tokens) -> Scalar:
    """2 - 2 cos(u, v) over features."""
    return 2 - 2 * F.cosine_similarity(u, v, dim=-1, eps=1e-6).mean()


def kl(u: Tokens, v: Tokens) -> Scalar:
    """KL(softmax(v) || softmax(u)) over features, mean over tokens; the code divides by the batch size only."""
    log_q, log_p = u.log_softmax(-1), v.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()


def wasserstein(u: Tokens, v: Tokens) -> Scalar:
    """1-D Wasserstein distance of a feature's values over the tokens, mean over samples and features."""
    return (u.sort(1).values - v.sort(1).values).abs().mean()


DISTANCES = {
    "norm_l2": l2,
    "norm_mse": mse,
    "mse": mse,
    "l1": l1,
    "smooth_l1": smooth_l1,
    "cosine": cosine,
    "kl": kl,
    "wasserstein": wasserstein,
}
STANDARDIZED = {"norm_l2", "norm_mse", "l1"}  # of tokens standardized first; the others take them as they are
