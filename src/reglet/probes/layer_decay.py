"""Learning rates that fall from a network's last block to its first (BEiT, arXiv:2106.08254)."""

from typing import Any

from torch import nn

from reglet import check
from reglet.attach import Where, matching

# Where blocks live: ViTs (timm's and ours), ResNets, torchvision's transformers, plain stacks of stages.
BLOCKS = ("**.blocks.*", "**.layer*.*", "**.stages.*", "*")


def layer_groups(
    backbone: nn.Module, *, lr: float, weight_decay: float, layer_decay: float, blocks: Where | None = None
) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer.  With L blocks in model order, block l = 1..L learns at

        lr * layer_decay^(L + 1 - l)

    Layers before the first block (patch embedding, positions, stem) have l = 0.  Layers after the last block learn at
    lr.  This is as in BEiT and MAE; in timm the last block, with the final norm, learns at lr.
    Vectors (norms, biases), and tokens and positions, which are (1, t, d), have no weight decay.

    blocks: the names of the blocks; by default those of known networks, or else the children.

    >>> from reglet.backbones import vit_mini
    >>> groups = layer_groups(vit_mini(size=32), lr=1e-3, weight_decay=0.05, layer_decay=0.5)
    >>> sorted({group["lr"] for group in groups})[-3:]
    [0.00025, 0.0005, 0.001]
    """
    check.positive(lr=lr, layer_decay=layer_decay)
    check.not_negative(weight_decay=weight_decay)
    if not layer_decay <= 1:
        raise ValueError(f"layer_decay is a factor in (0, 1], got {layer_decay}")
    depth, top = depths(backbone, blocks)
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, p in backbone.named_parameters():
        if not p.requires_grad:
            continue
        decays = p.ndim > 1 and not (p.ndim == 3 and p.shape[0] == 1)
        rate = lr * layer_decay ** (top - depth[name])
        new: dict[str, Any] = {"params": [], "lr": rate, "weight_decay": weight_decay if decays else 0.0}
        groups.setdefault((depth[name], decays), new)["params"].append(p)
    return list(groups.values())


def depths(backbone: nn.Module, blocks: Where | None = None) -> tuple[dict[str, int], int]:
    """Parameter name -> l, from 0 to L + 1; and L + 1.

    >>> from reglet.backbones import vit_mini
    >>> found, top = depths(vit_mini(size=32))
    >>> top, found["patch_embed.proj.weight"], found["blocks.0.norm1.weight"], found["norm.weight"]
    (7, 0, 1, 7)
    """
    outermost = block_names(backbone, blocks)
    top, outside, found = len(outermost) + 1, 0, {}
    for name, _ in backbone.named_parameters():
        inside = [i + 1 for i, block in enumerate(outermost) if name.startswith(block + ".")]
        outside = top if inside else outside
        found[name] = inside[0] if inside else outside
    return found, top


def block_names(backbone: nn.Module, blocks: Where | None = None) -> list[str]:
    """The names of the outermost blocks, in model order.

    >>> block_names(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    ['0', '1']
    """
    found = list(matching(backbone, blocks)) if blocks is not None else _known_blocks(backbone)
    return [name for name in found if not any(name.startswith(other + ".") for other in found)]


def _known_blocks(backbone: nn.Module) -> list[str]:
    for glob in BLOCKS:
        try:
            return list(matching(backbone, glob))
        except LookupError:
            continue
    raise ValueError(f"{type(backbone).__name__} has no blocks")
