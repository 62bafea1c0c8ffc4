"""LatentDR and its parts from the paper's formulas, sample by sample and head by head, from the weights alone."""

from math import sqrt

import torch
from torch import Tensor, nn


def normed(norm: nn.LayerNorm, z: Tensor) -> Tensor:
    centred = z - z.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def attention(module: nn.Module, z: Tensor, context: Tensor, *, heads: int, exclude_self: bool = False) -> Tensor:
    inner = module.q.weight.shape[0]
    wk, wv = module.kv.weight[:inner], module.kv.weight[inner:]
    bk, bv = module.kv.bias[:inner], module.kv.bias[inner:]
    width, rows = inner // heads, []
    for i, query in enumerate(z):
        others = [c for j, c in enumerate(context) if not (exclude_self and i == j)]
        q, found = module.q.weight @ query + module.q.bias, []
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            scores = torch.stack([q[part] @ (wk @ c + bk)[part] / sqrt(width) for c in others])
            p = scores.exp() / scores.exp().sum()
            found.append(sum(w * (wv @ c + bv)[part] for w, c in zip(p, others, strict=True)))
        rows.append(module.out.weight @ torch.cat(found) + module.out.bias)
    return torch.stack(rows)


def feed_forward(module: nn.Module, z: Tensor) -> Tensor:
    hidden = (z @ module.ff[0].weight.T + module.ff[0].bias).clamp_min(0)
    return hidden @ module.ff[3].weight.T + module.ff[3].bias


def layer(module: nn.Module, z: Tensor, context: Tensor, mix, *, norm: str) -> Tensor:
    """`mix`: what stands in the place of attention, a function of (z, context).  No dropout."""
    if norm == "post":
        z = normed(module.norm1, z + mix(z, context))
        return normed(module.norm2, z + feed_forward(module, z))
    if norm == "pre":
        z = z + mix(normed(module.norm1, z), normed(module.norm1, context))
        return z + feed_forward(module, normed(module.norm2, z))
    z = normed(module.norm1, z) + mix(z, context)
    return normed(module.norm2, z) + feed_forward(module, z)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Labels are rows of probabilities."""
    return -sum((t * (row - row.exp().sum().log())).sum() for row, t in zip(logits, y, strict=True)) / len(y)
