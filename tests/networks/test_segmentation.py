import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet.attach import attach
from reglet.blocks import SIM
from reglet.networks.segmentation import HEADS, DeepLabV3Head, FCNHead, PSPHead, UNetDecoder, UNetEncoder, build


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def image(*, n: int = 2, h: int = 32, w: int = 48) -> Tensor:
    return torch.randn(n, 3, h, w)


@pytest.mark.parametrize("decoder", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_every_network_gives_logits_of_every_pixel_and_trains_all_of_itself(head: str, decoder: bool) -> None:
    network = build(head, classes=3, width=4, stages=4, decoder=decoder)
    y = network(image())
    assert y.shape == (2, 3, 32, 48)
    F.cross_entropy(y, torch.randint(3, (2, 32, 48))).backward()
    still = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    # What goes into batch norm may be shifted at will: nothing else is without a gradient.
    assert all(name.startswith("decoder.ups") and name.endswith("bias") for name in still)


@pytest.mark.parametrize("head", HEADS)
def test_a_mirrored_image_has_mirrored_maps_under_symmetric_kernels(head: str) -> None:
    network = build(head, classes=2, width=4, stages=4).eval()
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            module.weight.data = (module.weight + module.weight.flip(3)) / 2
    x = image(h=48)
    with torch.no_grad():
        y, mirrored = network(x), network(x.flip(3))
    torch.testing.assert_close(mirrored, y.flip(3), rtol=1e-4, atol=1e-5)


def test_the_decoder_sees_the_encoders_map_of_its_size() -> None:
    """Zeroing the skip of one level changes the result, and the coarsest map alone cannot make up for it."""
    encoder, decoder = UNetEncoder(widths=(4, 8, 16)), UNetDecoder(widths=(4, 8, 16))
    maps = encoder(image())
    assert [tuple(m.shape[1:]) for m in maps] == [(4, 32, 48), (8, 16, 24), (16, 8, 12)]
    y = decoder(maps)
    assert y.shape == (2, 4, 32, 48)
    for level in range(3):
        other = [m if i != level else torch.zeros_like(m) for i, m in enumerate(maps)]
        assert not torch.allclose(decoder(other), y)
    with pytest.raises(ValueError, match="expected 3 maps, the finest first; got 2"):
        decoder(maps[1:])


def test_atrous_convolutions_are_those_of_a_kernel_with_holes() -> None:
    """Rate 6: the same as a dense 13 x 13 kernel with the nine taps 6 apart, which unfold computes."""
    head = DeepLabV3Head(3, 2, dim=4).eval()
    x = image(h=20, w=24)
    for conv, rate in zip(head.local[1:], (6, 12, 18), strict=True):
        kernel = conv[0].weight
        side = 2 * rate + 1
        dense = torch.zeros(4, 3, side, side)
        dense[:, :, ::rate, ::rate] = kernel
        columns = F.unfold(x, side, padding=rate)
        expected = torch.einsum("ok,nkp->nop", dense.flatten(1), columns).view(2, 4, 20, 24)
        torch.testing.assert_close(conv[0](x), expected, rtol=1e-4, atol=1e-5)


def test_the_pyramids_levels_are_means_of_parts() -> None:
    head = PSPHead(3, 2, dim=4, bins=(1, 2)).eval()
    seen: list[Tensor] = []
    for level in head.pyramid:
        level.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    x = image(h=8, w=12)
    head(x)
    torch.testing.assert_close(seen[0], x.mean((2, 3), keepdim=True))
    torch.testing.assert_close(seen[1], x.view(2, 3, 2, 4, 2, 6).mean((3, 5)))


@pytest.mark.parametrize("head", [PSPHead, DeepLabV3Head])
def test_context_heads_see_the_whole_map_and_fcn_its_neighbourhood(head: type[nn.Module]) -> None:
    x = image(h=40, w=40)
    far = x.clone()
    far[:, :, -1, -1] += 100

    def corner(of: nn.Module, x: Tensor) -> Tensor:
        return of.eval()(x)[:, :, 0, 0].detach()

    wide, narrow = head(3, 2, dim=4), FCNHead(3, 2, dim=4)
    assert not torch.allclose(corner(wide, x), corner(wide, far))
    torch.testing.assert_close(corner(narrow, x), corner(narrow, far), rtol=0, atol=0)


@pytest.mark.parametrize("head", HEADS)
def test_sim_attaches_reaches_its_blocks_and_leaves_no_trace(head: str) -> None:
    network, x = build(head, classes=2, width=4, stages=4), image()
    before = network.eval()(x)
    keys = list(network.state_dict())
    sim = attach(network, network.sim_blocks, SIM(channel_dim=1), example=x)
    assert sim.blocks == ["encoder.stages.1", "encoder.stages.2", "encoder.stages.3"]
    network.train()(x)
    sim.loss().backward()
    for name, p in network.named_parameters():
        reached = p.grad is not None and bool(p.grad.any())
        assert reached == name.startswith("encoder."), name
    sim.remove()
    network.zero_grad()
    fresh = build(head, classes=2, width=4, stages=4)
    fresh.load_state_dict(network.state_dict())
    assert list(network.state_dict()) == keys
    torch.testing.assert_close(network.eval()(x), fresh.eval()(x), rtol=0, atol=0)
    assert not torch.equal(before, network(x))  # batch norm saw a batch, and nothing else changed


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"multiples of 8, got 32 x 44"):
        build("fcn", classes=2, width=4, stages=4)(image(w=44))
    with pytest.raises(ValueError, match="one of unet, fcn, psp, deeplabv3; got 'pspnet'"):
        build("pspnet", classes=2)
    with pytest.raises(ValueError, match="classes=1 from 2 on"):
        build("fcn", classes=1)
    with pytest.raises(ValueError, match="a width for each stage"):
        UNetEncoder(widths=())


@pytest.mark.parametrize("head", ["psp", "deeplabv3"])
def test_a_mean_over_an_image_is_that_image_s_alone(head: str) -> None:
    """In training, too: with batch norm a mean would be seen relative to the few others of the batch."""
    end = build(head, classes=2, width=4, stages=4).head.train()
    parts = end.pyramid if isinstance(end, PSPHead) else [end.whole]
    means = torch.randn(3, 4, 1, 1)
    for part in parts:
        torch.testing.assert_close(part(means)[:1], part(means[:1]))
