"""The four audio networks: their parts against their papers' equations, and SIM on their blocks."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from reglet.attach import attach
from reglet.blocks import SIM
from reglet.networks.audio import (
    TDNN,
    CAMPPlus,
    ERes2Net,
    Res2Net,
    campplus_small,
    eres2net_small,
    res2net_small,
    statistics,
    tdnn_small,
)
from reglet.networks.audio.campplus import DenseBlock, Mask, MaskedLayer, segment_mean
from reglet.networks.audio.eres2net import Fusion
from reglet.networks.audio.pooling import EPS
from reglet.networks.audio.res2net import Scales
from reglet.networks.audio.tdnn import CONTEXTS, TDNNLayer

NETWORKS = [tdnn_small, res2net_small, eres2net_small, campplus_small]


def weights(module: nn.Module, *, without: tuple[str, ...] = ()) -> int:
    """Millions are what papers print; of all parameters, but for those of modules whose names begin so."""
    return sum(p.numel() for name, p in module.named_parameters() if not name.startswith(without))


def test_the_canonical_names_have_the_published_sizes() -> None:
    """Snyder et al.: 4.2 million without the second dense layer.  3D-Speaker: 7.18, and 6.61 of which 4.64 before the
    embedding.  Gao et al., Res2Net-50 of 26w x 4s: 25.70, less a classifier of 2048 x 1000 + 1000 and two channels.
    3D-Speaker's were read in its code; 4.2 and 25.70 are remembered, without a source here."""
    with torch.device("meta"):
        tdnn, campplus, eres2net, res2net = TDNN(mels=24), CAMPPlus(mels=80), ERes2Net(mels=80), Res2Net(mels=80)
    norms = sum(weights(m) for m in tdnn.modules() if isinstance(m, nn.BatchNorm1d))
    assert round((weights(tdnn, without=("dense.1.0",)) - norms) / 1e6, 1) == 4.2
    assert round(weights(campplus) / 1e6, 2) == 7.18
    assert round(weights(eres2net) / 1e6, 2) == 6.61
    assert round(weights(eres2net, without=("embed",)) / 1e6, 2) == 4.64
    assert round((weights(res2net) + 2048 * 1000 + 1000 + 2 * 64 * 7 * 7) / 1e6, 2) == 25.70


@pytest.mark.parametrize("network", [TDNN, CAMPPlus, ERes2Net, Res2Net])
def test_the_published_networks_run(network: type[TDNN | CAMPPlus | ERes2Net | Res2Net]) -> None:
    """Shapes only: nothing is computed on the meta device."""
    with torch.device("meta"):
        net = network(mels=40)
        assert net(torch.zeros(2, 40, 80)).shape == (2, net.dim)
    assert all(net.get_submodule(name) for name in net.sim_blocks)


@pytest.mark.parametrize(("size", "dilation"), sorted(set(CONTEXTS)))
def test_a_tdnn_layer_is_an_affine_map_of_spliced_frames(size: int, dilation: int) -> None:
    torch.manual_seed(0)
    layer = TDNNLayer(5, 7, size=size, dilation=dilation).eval()
    x = torch.randn(2, 5, 12)
    offsets = [dilation * (i - size // 2) for i in range(size)]
    weight = layer.affine.weight  # (7, 5, size)
    for t in range(12):
        total = layer.affine.bias.expand(2, 7)
        for i, o in enumerate(offsets):
            if 0 <= t + o < 12:
                total = total + x[:, :, t + o] @ weight[:, :, i].T
        expected = layer.norm(total.relu()[:, :, None])[:, :, 0]
        torch.testing.assert_close(layer(x)[:, :, t], expected)


def test_tdnn_has_the_published_contexts() -> None:
    seen = [(m.affine.kernel_size[0], m.affine.dilation[0]) for m in tdnn_small(mels=8).layers]
    assert seen == [(5, 1), (3, 2), (3, 3), (1, 1), (1, 1)]


def test_statistics() -> None:
    x = torch.randn(3, 4, 9)
    expected = torch.cat([x.mean(2), (x.pow(2).mean(2) - x.mean(2) ** 2 + EPS).sqrt()], 1)
    torch.testing.assert_close(statistics(x), expected)
    constant = torch.ones(2, 3, 1, requires_grad=True)
    statistics(constant).sum().backward()
    assert torch.isfinite(constant.grad).all()


def test_scales_of_res2net() -> None:
    """y1 = x1, y2 = K2(x2), y3 = K3(x3 + y2), y4 = K4(x4 + y3)."""
    torch.manual_seed(0)
    scales = Scales(8, scales=4).eval()
    x = torch.randn(2, 8, 5, 6)
    x1, x2, x3, x4 = x.split(2, dim=1)
    k2, k3, k4 = (lambda y, k=k: k(y).relu() for k in scales.convs)
    y2 = k2(x2)
    y3 = k3(x3 + y2)
    torch.testing.assert_close(scales(x), torch.cat([x1, y2, y3, k4(x4 + y3)], 1))


def test_scales_of_eres2net() -> None:
    """y1 = K1(x1), yi = Ki(fuse(xi, y(i-1)))."""
    torch.manual_seed(0)
    scales = Scales(6, scales=3, fuse=Fusion, all_convolved=True).eval()
    x = torch.randn(2, 6, 5, 6)
    x1, x2, x3 = x.split(2, dim=1)
    y1 = scales.convs[0](x1).relu()
    y2 = scales.convs[1](scales.fuse["1"](x2, y1)).relu()
    y3 = scales.convs[2](scales.fuse["2"](x3, y2)).relu()
    torch.testing.assert_close(scales(x), torch.cat([y1, y2, y3], 1))


def test_fusion() -> None:
    torch.manual_seed(0)
    fusion = Fusion(8).eval()
    x, y = torch.randn(2, 2, 8, 3, 4)
    inner = torch.sigmoid(z := fusion.squeeze(torch.cat([x, y], 1))) * z
    u = torch.tanh(fusion.excite(inner))
    torch.testing.assert_close(fusion(x, y), x + y + u * (x - y))


@pytest.mark.parametrize("t", [7, 20, 23, 40])
def test_segment_mean(t: int) -> None:
    x = torch.randn(2, 3, t)
    expected = torch.stack([x[:, :, i // 20 * 20 : i // 20 * 20 + 20].mean(2) for i in range(t)], 2)
    torch.testing.assert_close(segment_mean(x, segment=20), expected)


def test_mask_and_layer_of_campplus() -> None:
    torch.manual_seed(0)
    layer = MaskedLayer(6, 4, dilation=2, segment=5).eval()
    x = torch.randn(2, 6, 11)
    h = layer.bottleneck(x)
    context = h.mean(2, keepdim=True) + segment_mean(h, segment=5)
    mask = layer.mask.excite(layer.mask.squeeze(context).relu()).sigmoid()
    torch.testing.assert_close(layer(x), layer.features(h) * mask)
    assert isinstance(layer.mask, Mask)
    assert layer.features.dilation == (2,)


def test_dense_block_sees_all_before() -> None:
    torch.manual_seed(0)
    block = DenseBlock(6, depth=2, growth=4, dilation=1, segment=5).eval()
    x = torch.randn(2, 6, 11)
    one = torch.cat([x, block.layers[0](x)], 1)
    two = torch.cat([one, block.layers[1](one)], 1)
    torch.testing.assert_close(block(x), block.transition(two))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("mels", "t"), [(40, 80), (33, 51), (64, 20), (9, 8)])
def test_any_number_of_bands_and_frames(network: Callable[..., nn.Module], mels: int, t: int) -> None:
    net = network(mels=mels)
    assert net(torch.randn(2, mels, t)).shape == (2, net.dim)
    assert net(torch.randn(2, mels, t + 9)).shape == (2, net.dim)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_parameter_gets_a_gradient(network: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    net = network(mels=16)
    nn.functional.cross_entropy(net(torch.randn(6, 16, 24)), torch.arange(6) % 3).backward()
    assert [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


@pytest.mark.parametrize("network", NETWORKS)
def test_sim_reaches_the_blocks_and_leaves_no_trace(network: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    net = network(mels=32)  # channels equal frequencies in one stage: the layout has to be said
    before, x = copy.deepcopy(net.state_dict()), torch.randn(6, 32, 40)
    outputs = copy.deepcopy(net).eval()(x)
    sim = attach(net, list(net.sim_blocks), SIM(channel_dim=1), example=x)
    assert sim.blocks == list(net.sim_blocks)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    net(x)
    sim.loss().backward()
    for name in net.sim_blocks:
        assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in net.get_submodule(name).parameters()), name
    sim.remove()
    net.load_state_dict(before)
    assert torch.equal(net.eval()(x), outputs)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_bad_widths() -> None:
    with pytest.raises(ValueError, match="7 channels and 4 scales"):
        Scales(7, scales=4)
    with pytest.raises(ValueError, match="size is odd"):
        TDNNLayer(3, 3, size=4)
