"""Weights that FSDP2 has shared out over the ranks, seen as whole tensors, and back.

A sharded tensor (DTensor) is told by its mesh, so that nothing here is imported unless there is one.
"""

from typing import Any

import torch
from torch import Tensor, nn


def shard(module: nn.Module, mesh: Any) -> nn.Module:
    """Every child of a Sequential or ModuleList (the blocks of a network) on its own, then what is left."""
    from torch.distributed.fsdp import fully_shard

    for parent in module.modules():
        if isinstance(parent, nn.ModuleList):
            for block in parent:
                if any(p.requires_grad for p in block.parameters()):
                    fully_shard(block, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def whole(x: Tensor) -> Tensor:
    """All of a sharded tensor, on every rank; a collective.  Any other tensor as it is."""
    full: Tensor = x.full_tensor() if hasattr(x, "full_tensor") else x
    return full.detach()


def laid_out_like(x: Tensor, like: Tensor) -> Tensor:
    """`x` on the device, in the memory format and with the shards of `like`; of another shape, as it is.

    The memory format matters: a sum in another order has other bits.
    """
    if x.shape != like.shape:
        return x
    if hasattr(like, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(x.to(like.device), like.device_mesh, like.placements)
    return torch.empty_like(like, dtype=x.dtype, requires_grad=False).copy_(x)
