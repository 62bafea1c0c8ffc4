import pytest
import torch
from torch import nn

from reglet.backbones import ConvNet, projector


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_parameter_count_by_hand() -> None:
    def conv(i: int, o: int) -> int:
        return 9 * i * o + 2 * o

    assert size(ConvNet()) == conv(3, 16) + conv(16, 32) + conv(32, 64) + conv(64, 128)
    deep = ConvNet(widths=(8, 16), depth=3, in_channels=1)
    assert size(deep) == conv(1, 8) + 2 * conv(8, 8) + conv(8, 16) + 2 * conv(16, 16)


@pytest.mark.parametrize(("stride", "grid"), [(1, (4, 6)), (2, (2, 3))])
def test_stages_halve_the_grid(stride: int, grid: tuple[int, int]) -> None:
    net, x = ConvNet(stride=stride), torch.randn(2, 3, 32, 48)
    maps = net.forward_map(x)
    assert maps.shape == (2, 128, *grid)
    assert net.eval()(x).shape == (2, net.dim)
    torch.testing.assert_close(net(x), net.forward_map(x).mean((2, 3)))


def test_stages_have_names_to_attach_to() -> None:
    names = [name for name, _ in ConvNet(widths=(4, 8, 16)).named_modules()]
    assert [name for name in names if name.count(".") == 1] == ["stages.0", "stages.1", "stages.2"]


def test_channels_last_changes_nothing() -> None:
    torch.manual_seed(0)
    net, x = ConvNet(depth=2).eval(), torch.randn(4, 3, 32, 32)
    plain = net(x)
    last = net.to(memory_format=torch.channels_last)(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last, plain, rtol=1e-4, atol=1e-5)  # another order of summation


def test_every_parameter_gets_a_gradient() -> None:
    net = nn.Sequential(ConvNet(widths=(4, 8), depth=2), projector(8, widths=(16, 16, 5)))
    net(torch.randn(8, 3, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters() if p.ndim > 1)


def test_projector_is_the_papers() -> None:
    head = projector(384, activation=nn.GELU)
    kinds = [nn.Linear, nn.BatchNorm1d, nn.GELU, nn.Linear, nn.BatchNorm1d, nn.GELU, nn.Linear]
    assert [type(layer) for layer in head] == kinds
    widths = [(layer.in_features, layer.out_features) for layer in head if isinstance(layer, nn.Linear)]
    assert widths == [(384, 2048), (2048, 2048), (2048, 256)]
    assert projector(7, widths=(3,))(torch.zeros(2, 7)).shape == (2, 3)


def test_bad_sizes_say_so() -> None:
    with pytest.raises(ValueError, match="at least one width"):
        ConvNet(widths=())
    with pytest.raises(ValueError, match="depth=0"):
        ConvNet(depth=0)
    with pytest.raises(ValueError, match="at least one width"):
        projector(4, widths=())
