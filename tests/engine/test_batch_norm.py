"""Batch norm over ranks is batch norm of the whole batch: output, gradients and running averages."""

from pathlib import Path

import pytest
import torch
from tests import ranks
from torch import Tensor, nn

from reglet.engine.batch_norm import OverRanks, synchronize

WORLD = 3


def case(ndim: int, *, momentum: float | None = 0.1) -> tuple[nn.Module, Tensor, Tensor]:
    """A network with a batch norm in it, a batch for all ranks whose parts differ much, and what the loss asks."""
    random = torch.Generator().manual_seed(ndim)
    shape = (WORLD * 4, 5, *([3, 2][: ndim - 2]))
    x = torch.randn(shape, dtype=torch.float64, generator=random)
    x = x + torch.arange(WORLD * 4).view(-1, *[1] * (ndim - 1)) // 4
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[ndim]
    norm = kind(5, momentum=momentum).double()
    nn.init.uniform_(norm.weight, generator=random)
    nn.init.uniform_(norm.bias, generator=random)
    return nn.Sequential(nn.Identity(), norm), x, torch.randn(shape, dtype=torch.float64, generator=random)


def whole(ndim: int, momentum: float | None) -> tuple[Tensor, ...]:
    net, x, ask = case(ndim, momentum=momentum)
    x.requires_grad_()
    for _ in range(2):
        y = net(x)
    (y * ask).sum().backward()
    return (y.detach(), x.grad, *(p.grad for p in net.parameters()), *net.buffers())


def on_ranks(rank: int, world: int) -> None:
    for ndim in (2, 3, 4):
        for momentum in (0.1, None):
            net, x, ask = case(ndim, momentum=momentum)
            own = slice(4 * rank, 4 * rank + 4)
            x = x[own].clone().requires_grad_()
            synchronize(net, cuda=False)
            assert isinstance(net[1], OverRanks)
            assert list(net.state_dict()) == list(case(ndim)[0].state_dict())
            for _ in range(2):
                y = net(x)
            (y * ask[own]).sum().backward()
            want, want_x, want_weight, want_bias, *buffers = whole(ndim, momentum)
            torch.testing.assert_close(y, want[own])
            torch.testing.assert_close(x.grad, want_x[own])
            for p, wanted in zip(net.parameters(), (want_weight, want_bias), strict=True):
                grad = p.grad.clone()
                torch.distributed.all_reduce(grad)
                torch.testing.assert_close(grad, wanted)
            for buffer, wanted in zip(net.buffers(), buffers, strict=True):
                torch.testing.assert_close(buffer, wanted)
            if rank == 0:  # eval mode asks no other rank
                net.eval()(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        norm = OverRanks(5)
        assert norm(torch.randn(4, 5, dtype=torch.bfloat16)).dtype == torch.bfloat16
    with pytest.raises(ValueError, match=r"\(n, channels"):
        norm(torch.randn(5))


def test_ranks_are_normalized_together(tmp_path: Path) -> None:
    ranks.run("tests.engine.test_batch_norm:on_ranks", world=WORLD, folder=tmp_path)


def test_one_process_keeps_torchs_bits() -> None:
    net, x, _ = case(4)
    plain = net(x)
    other, *_ = case(4)
    synchronize(other, cuda=False)
    assert torch.equal(other(x), plain)
