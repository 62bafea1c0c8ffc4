"""Patch NT-Xent, the equivariance loss of SER.

    l_ij = -log exp(s(z_ij, z'_ij)/tau) / (exp(s(z_ij, z'_ij)/tau) + sum_u exp(s(z_ij, u)/tau)),   L = mean of l_ij

s is the cosine.  z_ij and z'_ij are the tokens of image i at place j in two views, one of them moved to the frame of
the other.  u runs over the tokens of all other images, in z' (cross-view) and, with `intra`, in z.  The other tokens of
image i are neither positive nor negative.

The paper has both kinds of negatives, and anchors on one side.  The authors' code has only cross-view negatives, and
the mean over both sides.  A gather in it cuts the gradient of anchors and keys, so it trains nothing.  Here negatives
and sides are arguments, and both anchors and keys get a gradient.

It is computed as log(1 + sum_u exp(s_u - s_pos)), whose gradient keeps its digits when the positive wins by far.  Value
and gradient are computed together: the scores of a few anchors with all keys serve for both, and are then overwritten.
At most `block` scores exist at a time, and each is computed once.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check, dist
from reglet.blocks.two_places import unit
from reglet.precision import no_autocast
from reglet.types import Scalar

LEAST = 1e-6  # temperature: float32 cannot tell scores apart that differ by less
BLOCK = 1 << 21  # scores at a time: 8 MB, a CPU's cache
LARGE_BLOCK = 1 << 26  # on an accelerator, which needs fewer and larger kernels: 256 MB


def patch_ntxent(
    z: Float[Tensor, "n t d"],
    target: Float[Tensor, "n t d"],
    *,
    temperature: float = 0.3,
    intra: bool = True,
    symmetric: bool = True,
    gather: bool = False,
    block: int | None = None,
) -> Scalar:
    """z, target: tokens of two views, place by place.

    intra: other images of the anchor's view are negatives too.
    symmetric: the mean over anchors in `z` and anchors in `target`; otherwise only anchors in `z`.
    gather: compare own anchors with the tokens of all ranks, whose numbers may differ.  The value is that of one
        process, and under DDP's averaging so is the parameter gradient.

    >>> round(patch_ntxent(torch.ones(3, 4, 8), torch.ones(3, 4, 8)).item(), 4)  # log(1 + 2 (n - 1) t)
    2.8332
    """
    check.between(LEAST, math.inf, temperature=temperature)
    check.flag(intra=intra, symmetric=symmetric, gather=gather)
    check.floating(z=z, target=target)
    block = (BLOCK if z.device.type == "cpu" else LARGE_BLOCK) if block is None else block
    check.whole(1, block=block)
    if z.ndim != 3 or z.shape != target.shape:  # a rank may have no images
        raise ValueError(
            f"z and target are tokens (n, t, d), place by place; got {tuple(z.shape)} and {tuple(target.shape)}"
        )
    if symmetric:
        sides = [
            patch_ntxent(a, b, temperature=temperature, intra=intra, symmetric=False, gather=gather, block=block)
            for a, b in ((z, target), (target, z))
        ]
        return torch.stack(sides).mean()
    with no_autocast(z):
        tokens = z.shape[1]
        _require_two_images(z, gather=gather)
        q, k = (unit(y.to(torch.promote_types(z.dtype, target.dtype))).flatten(0, 1) for y in (z, target))
        keys, first, everyone = [k], 0, len(q)
        if gather and dist.world_size() > 1:
            keys, first = [dist.concat_over_ranks(k)], _rows_before(len(q), q)
            everyone = len(keys[0])
        if intra:
            keys.append(dist.concat_over_ranks(q) if gather else q)
        value: Tensor = _Sum.apply((first, tokens, temperature, block), q, *keys)
        return (dist.sum_over_ranks(value) if gather else value) / everyone


class PatchNTXent(nn.Module):
    """`patch_ntxent` with its settings.

    >>> tokens, momentum = torch.randn(2, 4, 9, 16)
    >>> bool(PatchNTXent()(tokens, tokens) < PatchNTXent()(tokens, momentum))
    True
    """

    def __init__(
        self, *, temperature: float = 0.3, intra: bool = True, symmetric: bool = True, gather: bool = False
    ) -> None:
        super().__init__()
        check.between(LEAST, math.inf, temperature=temperature)
        check.flag(intra=intra, symmetric=symmetric, gather=gather)
        self.temperature, self.intra, self.symmetric, self.gather = temperature, intra, symmetric, gather

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, intra={self.intra}, symmetric={self.symmetric}, gather={self.gather}"

    def forward(self, z: Float[Tensor, "n t d"], target: Float[Tensor, "n t d"]) -> Scalar:
        return patch_ntxent(
            z,
            target,
            temperature=self.temperature,
            intra=self.intra,
            symmetric=self.symmetric,
            gather=self.gather,
        )


def _require_two_images(z: Tensor, *, gather: bool) -> None:
    images = len(z)
    if gather and dist.world_size() > 1:
        images = int(dist.sum_over_ranks(torch.tensor(float(images), device=z.device)))
    if images < 2 or 0 in z.shape[1:]:
        raise ValueError(
            f"negatives are tokens of other images, so at least two images are needed; got {images} "
            f"(this rank has (n, t, d) = {tuple(z.shape)})"
        )


def _rows_before(rows: int, like: Tensor) -> int:
    """How many rows the ranks before this one have."""
    every = dist.concat_over_ranks(torch.tensor([float(rows)], dtype=torch.float64, device=like.device))
    return int(every[: dist.rank()].sum())


class _Sum(torch.autograd.Function):
    """sum_i l_i for unit vectors.  q: anchors.  keys: the positives are the rows from `first` on of the first set."""

    @staticmethod
    def forward(ctx: Any, settings: tuple[int, int, float, int], q: Tensor, *keys: Tensor) -> Tensor:
        wanted = list(ctx.needs_input_grad[1:])
        value, gradients = _value_and_gradients(q, keys, wanted, settings)
        ctx.save_for_backward(*(g for g in gradients if g is not None))
        ctx.wanted = wanted
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True: the gradient would pass for a constant
            raise RuntimeError(
                "patch NT-Xent computes its gradient together with its value: it has no second derivative"
            )
        saved = iter(ctx.saved_tensors)
        return None, *(g * next(saved) if wanted else None for wanted in ctx.wanted)


def _value_and_gradients(
    q: Float[Tensor, "m d"],
    keys: Sequence[Float[Tensor, "_ d"]],
    wanted: Sequence[bool],
    settings: tuple[int, int, float, int],
) -> tuple[Tensor, list[Tensor | None]]:
    first, tokens, tau, block = settings
    gradients = [torch.zeros_like(y) if want else None for y, want in zip((q, *keys), wanted, strict=True)]
    g_q, *g_keys = gradients
    sizes = [len(key) for key in keys]
    rows = max(1, min(len(q), block // sum(sizes)))
    scores, value = q.new_empty(rows, sum(sizes)), q.new_zeros(())
    own = keys[0][first : first + len(q)]
    for start in range(0, len(q), rows):
        these = slice(start, min(start + rows, len(q)))
        a, positive = q[these] / tau, own[these]
        s = scores[: len(a)]
        for part, key in zip(s.split(sizes, dim=1), keys, strict=True):
            torch.mm(a, key.T, out=part)
        s -= (a * positive).sum(1, keepdim=True)
        _forget_own_image(s, sizes, start=start, first=first, tokens=tokens)
        most = s.amax(1, keepdim=True).clamp_(min=0)
        e = s.sub_(most).exp_()
        negatives = e.sum(1, keepdim=True)  # times exp(-most)
        value += (most + torch.log1p(negatives + torch.expm1(-most))).sum()
        if not any(wanted):
            continue
        total = negatives + torch.exp(-most)
        pull = negatives / total  # 1 - softmax of the positive
        weighted = a / total
        for part, key, g_key in zip(e.split(sizes, dim=1), keys, g_keys, strict=True):
            if g_q is not None:  # out=, because torch's FLOP counter does not know addmm_
                torch.addmm(g_q[these], part, key, out=g_q[these])
            if g_key is not None:
                torch.addmm(g_key, part.T, weighted, out=g_key)
        if g_q is not None:
            g_q[these].div_(total).sub_(pull * positive).div_(tau)
        if g_keys[0] is not None:
            g_keys[0][first + these.start : first + these.stop].sub_(pull * a)
    return value, gradients


def _forget_own_image(s: Float[Tensor, "r k"], sizes: Sequence[int], *, start: int, first: int, tokens: int) -> None:
    """Removes the scores of keys of the anchor's own image, as exp(-inf) = 0.  Anchors are the rows from `start` on."""
    stop = start + len(s)
    for image in range(start // tokens, -(-stop // tokens)):
        low, high = max(image * tokens, start) - start, min((image + 1) * tokens, stop) - start
        column = first + image * tokens
        for _ in sizes:
            s[low:high, column : column + tokens] = -torch.inf
            column += sizes[0]
