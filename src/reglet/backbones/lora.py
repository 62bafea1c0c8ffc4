"""LoRA by the peft library: low-rank updates are trained in place of all weights.

    W x  becomes  W x + (alpha / rank) B A x,    A: (rank, in), B: (out, rank), B = 0 at the start

Hu et al., ICLR 2022, arXiv:2106.09685.  W is frozen, A and B are trained.  Merged, W + (alpha / rank) B A is a plain
weight again.  alpha is 2 rank.
"""

import re
from collections.abc import Sequence

from torch import nn


def add_lora(backbone: nn.Module, rank: int, *, inside: Sequence[str] | None = None) -> None:
    """Adds low-rank updates to every linear layer, or to the plain convolutions if there are none.  The rest is frozen.

    inside: names of the blocks that get updates; by default all.

    >>> from reglet.backbones import vit_mini
    >>> net = vit_mini(size=16)
    >>> add_lora(net, 2)
    >>> sorted({name.rsplit(".", 3)[1] for name, p in net.named_parameters() if p.requires_grad})
    ['lora_A', 'lora_B']
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ImportError("lora= needs peft: pip install 'reglet[lora]'") from error
    if rank < 1:
        raise ValueError(f"lora is a rank of at least 1, got {rank}")
    names = _layers(backbone, inside)
    if not names:
        raise ValueError(f"{type(backbone).__name__} has no linear layer or plain convolution for lora= to update")
    targets = "|".join(re.escape(name) for name in names)  # as a pattern: peft takes names for endings
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets), backbone)


def merge_lora(backbone: nn.Module) -> None:
    """Merges every update into its weight.  The network is then a plain one again.

    >>> import torch
    >>> from reglet.backbones import vit_mini
    >>> net, x = vit_mini(size=16).eval(), torch.randn(2, 3, 16, 16)
    >>> keys, y = list(net.state_dict()), net(x)
    >>> add_lora(net, 2)
    >>> merge_lora(net)
    >>> list(net.state_dict()) == keys, torch.equal(net(x), y)
    (True, True)
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, layer in [(n, m) for n, m in backbone.named_modules() if isinstance(m, BaseTunerLayer)]:
        layer.merge()
        parent, _, own = name.rpartition(".")
        setattr(backbone.get_submodule(parent), own, layer.get_base_layer())


def _layers(backbone: nn.Module, inside: Sequence[str] | None) -> list[str]:
    def within(name: str) -> bool:
        return inside is None or any(name.startswith(f"{block}.") for block in inside)

    found = [(name, m) for name, m in backbone.named_modules() if within(name)]
    linear = [name for name, m in found if type(m) is nn.Linear]
    return linear or [name for name, m in found if type(m) is nn.Conv2d and m.groups == 1]
