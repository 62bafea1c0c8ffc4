"""Features of a vision transformer's last blocks, side by side."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.attach import watch
from reglet.types import WrongKindError


def last_blocks(backbone: nn.Module, x: Float[Tensor, "n c h w"], *, blocks: int = 4) -> Float[Tensor, "n d"]:
    """[CLS] of the last `blocks` blocks, in order, each after the final norm.  The mean of the patch tokens where there
    is no [CLS], or before it joins.

    For our ViT and others with `blocks`, `norm` and `cls_token`, such as timm's.  VISReg's and SER's linear probes take
    four blocks.

    >>> from reglet.backbones import vit_mini
    >>> last_blocks(vit_mini(size=32), torch.zeros(2, 3, 32, 32), blocks=4).shape
    torch.Size([2, 768])
    """
    vit: Any = getattr(backbone, "model", backbone)  # what an adapter wraps
    every = getattr(vit, "blocks", None)
    if not isinstance(every, nn.Sequential | nn.ModuleList) or not isinstance(getattr(vit, "norm", None), nn.Module):
        raise WrongKindError(
            f"{type(vit).__name__} has no `blocks` and `norm` of a vision transformer to take features from"
        )
    if not 1 <= blocks <= len(every):
        raise ValueError(f"{type(vit).__name__} has {len(every)} blocks; got blocks={blocks}")
    chosen = range(len(every) - blocks, len(every))
    watched = watch(vit, [f"blocks.{i}" for i in chosen])
    try:
        with watched.open() as taps:
            backbone(x)
    finally:
        watched.remove()
    return torch.cat([_pooled(vit, vit.norm(taps[f"blocks.{i}"][0]), i) for i in chosen], dim=1)


def _pooled(vit: Any, y: Float[Tensor, "n t d"], block: int) -> Float[Tensor, "n d"]:
    if vit.cls_token is not None and block >= (getattr(vit, "cls_layer", 0) or 0):
        return y[:, 0]
    return y[:, getattr(vit, "num_prefix_tokens", 0) :].mean(1)
