"""[CLS] of the last layers, as SER's linear probe uses it."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.attach.watch import watch
from reglet.backbones.vit import ViT


def class_tokens(vit: ViT, x: Float[Tensor, "n c h w"], *, layers: int = 4) -> Float[Tensor, "n layers_d"]:
    """[CLS] after each of the last `layers` blocks, in order, each through the final norm.

    >>> from reglet.backbones import vit_mini
    >>> class_tokens(vit_mini(cls_layer=2), torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 768])
    """
    depth = len(vit.blocks)
    if not 1 <= layers <= depth:
        raise ValueError(f"this ViT has {depth} layers, got layers={layers}")
    if vit.cls_layer is None or vit.cls_layer > depth - layers:
        where = "has none" if vit.cls_layer is None else f"joins before block {vit.cls_layer}"
        raise ValueError(
            f"the last {layers} of {depth} layers have [CLS] if it joins before block {depth - layers} or earlier; "
            f"this ViT's {where}"
        )
    names = [f"blocks.{i}" for i in range(depth - layers, depth)]
    eye = watch(vit, names)
    try:
        with eye.open() as taps:
            vit(x)
    finally:
        eye.remove()
    return torch.cat([vit.norm(taps[name][0][:, 0]) for name in names], dim=1)
