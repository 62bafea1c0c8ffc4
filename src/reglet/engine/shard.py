"""Sharded weights of FSDP2: to whole tensors and back.

A sharded tensor (DTensor) is recognised by its mesh, so that nothing is imported unless there is one.
"""

from typing import Any

import torch
from torch import Tensor, nn


def shard(module: nn.Module, mesh: Any) -> nn.Module:
    """Shards each block, so that only one is whole at a time, and then the rest.

    Frozen blocks too: the start that `Preserved` holds a network to has the same shards as the network.
    """
    from torch.distributed.fsdp import fully_shard  # noqa: TID251  what the strategy asks us for

    for block in blocks(module, frozen=True):
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def blocks(module: nn.Module, *, frozen: bool = False) -> list[nn.Module]:
    """The repeated parts of a network: members of a Sequential or ModuleList, if all have one class and children.

    frozen: also those of which nothing is trained.
    """
    found: list[nn.Module] = []
    for parent in module.modules():
        members = list(parent.children()) if isinstance(parent, nn.Sequential | nn.ModuleList) else []
        alike = len({type(member) for member in members}) == 1
        if alike and all(any(member.children()) for member in members):
            found += [m for m in members if any(p.requires_grad or frozen for p in m.parameters())]
    return found


def whole(x: Tensor) -> Tensor:
    """The whole of a sharded tensor, on every rank (a collective).  Any other tensor stays as it is."""
    full: Tensor = x.full_tensor() if hasattr(x, "full_tensor") else x
    return full.detach()


def local(x: Tensor) -> Tensor:
    """This rank's part of a sharded tensor.  Any other tensor stays as it is."""
    own: Tensor = x.to_local() if hasattr(x, "to_local") else x
    return own


def laid_out_like(x: Tensor, like: Tensor) -> Tensor:
    """`x` with the device, memory format and shards of `like`.  A tensor of another shape stays as it is.

    The memory format matters, because a sum in another order has other bits.
    """
    if x.shape != like.shape:
        return x
    if hasattr(like, "device_mesh"):
        from torch.distributed.tensor import DTensor, distribute_tensor  # noqa: TID251

        assert isinstance(like, DTensor)
        return distribute_tensor(x.to(like.device), like.device_mesh, like.placements)
    return torch.empty_like(like, dtype=x.dtype, requires_grad=False).copy_(x)
