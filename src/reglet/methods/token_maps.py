"""The blocks of a backbone by number or name, and their outputs as tokens on a grid."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.attach import matching, watch
from reglet.backbones.protocol import Grid
from reglet.backbones.vit import ViT

Layer = int | str | Sequence[int | str]


def layer_names(backbone: nn.Module, layer: Layer) -> list[str]:
    """3 is the third of a ViT's `blocks`, ours or timm's.  A string is a name or glob, such as "blocks.*" for all."""
    wanted = [layer] if isinstance(layer, int | str) else list(layer)
    if not wanted:
        raise ValueError("expected a layer, by number or name, or several; got none")
    globs = [_numbered(backbone, one) if isinstance(one, int) else one for one in wanted]
    return list(matching(backbone, globs))


def _numbered(backbone: nn.Module, number: int) -> str:
    for name in ("blocks", "model.blocks"):
        try:
            blocks = backbone.get_submodule(name)
        except AttributeError:
            continue
        depth = len(list(blocks.children()))
        if not 1 <= number <= depth:
            raise ValueError(f"this backbone has the layers 1 to {depth}, got layer={number}")
        return f"{name}.{number - 1}"
    parts = ", ".join(name for name, _ in backbone.named_children())
    raise ValueError(
        f"layer={number} needs a backbone with `blocks`, and {type(backbone).__name__} has {parts}: "
        "give the layer by its name"
    )


def widths(backbone: nn.Module, names: Sequence[str], example: Tensor | None) -> list[int]:
    """The width of each block's output.  It is known for our ViT; for others, `example` is run in eval mode."""
    if isinstance(backbone, ViT) and all(name.startswith("blocks.") for name in names):
        return [backbone.dim] * len(names)
    if example is None:
        raise ValueError(
            f"the width of {', '.join(names)} in a {type(backbone).__name__} is not known: give some images as example="
        )
    modes = {module: module.training for module in backbone.modules()}
    eye = watch(backbone.eval(), names)
    try:
        with torch.no_grad(), eye.open() as taps:
            backbone(example)
    finally:
        eye.remove()
        for module, mode in modes.items():
            module.training = mode
    return [taps[name][0].shape[1 if taps[name][0].ndim == 4 else -1] for name in names]


def as_tokens(y: Tensor, *, image: Grid, patch: int) -> tuple[Float[Tensor, "n t d"], Grid]:
    """The patch tokens and their grid, from a map (n, d, h, w), or from tokens (n, t, d) that end with the patches."""
    if y.ndim == 4:
        return y.flatten(2).transpose(1, 2), (y.shape[2], y.shape[3])
    h, w = image[0] // patch, image[1] // patch
    if y.ndim != 3 or y.shape[1] < h * w:
        raise ValueError(
            f"expected a map (n, d, h, w), or tokens (n, t, d) of at least {h} x {w} patches; got {tuple(y.shape)}"
        )
    return y[:, y.shape[1] - h * w :], (h, w)
