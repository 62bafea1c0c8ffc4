from types import ModuleType

import pytest
import torch
from torch import nn

from reglet.backbones import ConvNet, Timm, ViT
from reglet.probes import last_blocks

IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def vit(cls_layer: int | None) -> ViT:
    torch.manual_seed(0)
    return ViT(dim=12, depth=4, heads=2, size=16, patch=4, cls_layer=cls_layer).eval()


def cut_off(net: ViT, depth: int) -> nn.Module:
    """The same network without its last blocks: an independent way to the features of an earlier one."""
    net = vit(net.cls_layer)
    net.blocks = net.blocks[:depth]
    return net


@torch.no_grad()
@pytest.mark.parametrize("cls_layer", [0, 1, None])
def test_are_the_features_of_shorter_networks(cls_layer: int | None) -> None:
    net = vit(cls_layer)
    wide = last_blocks(net, IMAGES, blocks=3)
    expected = torch.cat([cut_off(net, depth)(IMAGES) for depth in (2, 3, 4)], dim=1)
    torch.testing.assert_close(wide, expected)
    torch.testing.assert_close(wide[:, -12:], net(IMAGES))
    assert not any(module._forward_hooks for module in net.modules())


@torch.no_grad()
def test_before_a_late_cls_joins_the_patches_are_averaged() -> None:
    net = vit(3)
    wide = last_blocks(net, IMAGES, blocks=2)
    without_cls = vit(None)
    without_cls.load_state_dict(net.state_dict(), strict=False)
    without_cls.blocks = without_cls.blocks[:3]
    torch.testing.assert_close(wide[:, :12], without_cls(IMAGES))
    torch.testing.assert_close(wide[:, 12:], net(IMAGES))


@torch.no_grad()
def test_of_timms_transformers(timm: ModuleType) -> None:
    net = Timm("vit_tiny_patch16_224", size=32).eval()
    maps = net.model.forward_intermediates(
        IMAGES.repeat(1, 1, 2, 2), indices=4, norm=True, return_prefix_tokens=True, intermediates_only=True
    )
    expected = torch.cat([prefix[:, 0] for _, prefix in maps], dim=1)
    torch.testing.assert_close(last_blocks(net, IMAGES.repeat(1, 1, 2, 2)), expected)


def test_bad_input_says_so() -> None:
    with pytest.raises(ValueError, match="ViT has 4 blocks; got blocks=5"):
        last_blocks(vit(0), IMAGES, blocks=5)
    with pytest.raises(TypeError, match="ConvNet has no `blocks` and `norm`"):
        last_blocks(ConvNet(), IMAGES)
