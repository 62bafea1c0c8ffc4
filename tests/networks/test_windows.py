"""The 1-D encoder."""

import pytest
import torch

from reglet.networks.conv1d import ConvNet1d


@pytest.mark.parametrize(("channels", "t"), [(1, 8), (38, 64), (5, 33)])
def test_shapes_and_gradients(channels: int, t: int) -> None:
    net = ConvNet1d(channels=channels, widths=(4, 6))
    z = net(torch.randn(3, channels, t))
    assert z.shape == (3, 12)
    z.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_features_are_mean_and_maximum() -> None:
    net = ConvNet1d(channels=3).eval()
    x = torch.randn(2, 3, 40)
    y = net.stages(x)
    assert y.shape == (2, 64, 5)
    torch.testing.assert_close(net(x), torch.cat([y.mean(2), y.max(2).values], 1))


def test_bad_widths() -> None:
    with pytest.raises(ValueError, match="at least one width"):
        ConvNet1d(channels=3, widths=())
    with pytest.raises(ValueError, match="all positive"):
        ConvNet1d(channels=0)
