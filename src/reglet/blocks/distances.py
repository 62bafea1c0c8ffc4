"""Distances between a prediction and its target.

All take (..., samples, tokens, features) and return the mean over these three axes: a scalar for one head, (h,) for h.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Tokens = Float[Tensor, "*h b n d"]
Means = Float[Tensor, "*h"]
ALL = (-3, -2, -1)


class Standardize(nn.Module):
    """t(h) = (h - mean) / std over the tokens of each sample and feature (eq. 3), with the unbiased std of the code.

    sqrt(var + eps^2) instead of std + eps: a constant feature then has a finite gradient.
    """

    def __init__(self, *, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, h: Tokens) -> Tokens:
        centred = h - h.mean(-2, keepdim=True)
        var = centred.square().sum(-2, keepdim=True) / (h.shape[-2] - 1)
        return centred * torch.rsqrt(var + self.eps**2)


def l2(u: Tokens, v: Tokens) -> Means:
    """The mean over tokens of ||u - v||_2, as the authors' code computes it on standardized tokens."""
    return ((u - v).square().sum(-1) + 1e-12).sqrt().mean((-2, -1))


def mse(u: Tokens, v: Tokens) -> Means:
    return (u - v).square().mean(ALL)


def l1(u: Tokens, v: Tokens) -> Means:
    return (u - v).abs().mean(ALL)


def smooth_l1(u: Tokens, v: Tokens) -> Means:
    return F.smooth_l1_loss(u, v, reduction="none").mean(ALL)


def cosine(u: Tokens, v: Tokens) -> Means:
    """2 - 2 cos(u, v) over features."""
    return 2 - 2 * F.cosine_similarity(u, v, dim=-1, eps=1e-6).mean((-2, -1))


def kl(u: Tokens, v: Tokens) -> Means:
    """KL(softmax(v) || softmax(u)) over features, mean over tokens.  The code divides only by the batch size."""
    log_q, log_p = u.log_softmax(-1), v.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean((-2, -1))


def wasserstein(u: Tokens, v: Tokens) -> Means:
    """The 1-D Wasserstein distance between a feature's values over the tokens, mean over samples and features."""
    return (u.sort(-2).values - v.sort(-2).values).abs().mean(ALL)


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
STANDARDIZED = {"norm_l2", "norm_mse", "l1"}  # these take standardized tokens, the others raw ones
