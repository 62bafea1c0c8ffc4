"""Which layers of an encoder have maps to look at."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.attach.select import matching
from reglet.backbones.protocol import Tokens
from reglet.diagnostics.layers import Layers, layer_maps
from reglet.report.gather.source import device_of

GLOBS = ("blocks.*", "layer*.*", "stages.*", "layers.*")  # blocks as ViTs, ResNets and others call them
MOST = 6


def layers_of(encoder: nn.Module) -> Layers:
    """Up to MOST of its blocks, evenly spaced and with the last; or where blocks are not known, its tokens alone."""
    for glob in [prefix + glob for glob in GLOBS for prefix in ("", "model.")]:
        try:
            names = list(matching(encoder, glob))
        except LookupError:
            continue
        step = max(1, -(-len(names) // MOST))
        return on_cpu(layer_maps(encoder, names[::-1][::step][::-1], patch=patch_of(encoder)), device_of(encoder))
    if isinstance(encoder, Tokens):
        return on_cpu(lambda x: {"tokens": token_maps(encoder, x)}, device_of(encoder))
    raise ValueError(f"{type(encoder).__name__} has no blocks that are known by name, and no tokens()")


def on_cpu(layers: Layers, device: torch.device) -> Layers:
    """The same, from images on the CPU to maps there."""
    return lambda x: {name: y.float().cpu() for name, y in layers(x.to(device)).items()}


@torch.no_grad()
def token_maps(encoder: Tokens, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h w"]:
    y, grid = encoder.tokens(x)
    return y.transpose(1, 2).unflatten(2, grid)


def patch_of(encoder: nn.Module) -> int | None:
    """The side of a ViT's patches."""
    for module in (encoder, getattr(encoder, "model", None)):
        for found in (getattr(module, "patch", None), _first(getattr(module, "patch_embed", None))):
            if isinstance(found, int):
                return found
    return None


def _first(embed: object) -> object:
    size = getattr(embed, "patch_size", None)
    return size[0] if isinstance(size, tuple) else size


def finest(maps: Mapping[str, Tensor], *, least: int = 8) -> list[str]:
    """The last layer, and before it the deepest with `least` rows, if the last has fewer."""
    names = list(maps)
    fine = [name for name in names if maps[name].shape[2] >= least]
    return [fine[-1], names[-1]] if fine and fine[-1] != names[-1] else names[-1:]
