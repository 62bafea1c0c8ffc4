from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from reglet.backbones import Tokens, ViT, vit_base, vit_mini, vit_small, vit_tiny
from reglet.backbones.vit import DropPath, interpolated


def small(**options) -> ViT:
    return ViT(**({"dim": 24, "depth": 4, "heads": 3, "size": 32, "patch": 8} | options))


def randomised(model: nn.Module) -> nn.Module:
    """Away from the initial state, where norms are the identity and [CLS] is zero."""
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=g) * 0.1)
    return model.eval()


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def theirs(timm: ModuleType, **options) -> nn.Module:
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=24, depth=4, num_heads=3, num_classes=0, dynamic_img_size=True, **options
    )
    return randomised(model)


LAYOUTS = [(0, {}), (None, {"class_token": False, "global_pool": "avg", "fc_norm": False})]


@pytest.mark.parametrize(("cls_layer", "options"), LAYOUTS)
@pytest.mark.parametrize("size", [(32, 32), (16, 16), (48, 24)])
def test_equals_timm_with_its_weights(timm: ModuleType, cls_layer: int | None, options, size: tuple[int, int]) -> None:
    other, ours = theirs(timm, **options), small(cls_layer=cls_layer).eval()
    ours.load_state_dict(other.state_dict(), strict=True)
    x = images(2, 3, *size)
    torch.testing.assert_close(ours(x), other(x), rtol=1e-5, atol=1e-5)  # another order of summation in attention
    tokens, grid = ours.tokens(x)
    assert grid == (size[0] // 8, size[1] // 8)
    torch.testing.assert_close(tokens, other.forward_features(x)[:, 1 if cls_layer == 0 else 0 :], rtol=1e-5, atol=1e-5)


def test_timm_loads_our_named_model(timm: ModuleType) -> None:
    ours = randomised(vit_small(size=224, patch=16))
    model = timm.create_model("vit_small_patch16_224", num_classes=0).eval()
    model.load_state_dict(ours.state_dict(), strict=True)
    x = images(1, 3, 224, 224)
    torch.testing.assert_close(model(x), ours(x), rtol=1e-4, atol=1e-4)  # 12 layers of float32 sums in other orders


@pytest.mark.parametrize(
    ("build", "parameters"), [(vit_tiny, 5_524_416), (vit_small, 21_665_664), (vit_base, 85_798_656)]
)
def test_parameter_counts_are_timms(build, parameters: int) -> None:
    with torch.device("meta"):
        model = build(size=224)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_patch_tokens_before_a_late_cls_do_not_depend_on_it() -> None:
    model = randomised(small(cls_layer=2))
    seen: list[Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda _m, _a, y: seen.append(y.detach()))
    x = images(2, 3, 32, 32)
    model(x)
    before, seen[:] = list(seen), []
    with torch.no_grad():
        model.cls_token.add_(1.0)
    model(x)
    assert [y.shape[1] for y in seen] == [16, 16, 17, 17]
    assert all(torch.equal(a, b) for a, b in zip(before[:2], seen[:2], strict=True))
    assert not torch.allclose(before[2], seen[2])


def test_a_late_cls_is_the_raw_parameter_in_front_of_its_block() -> None:
    model = randomised(small(cls_layer=3))
    assert model.pos_embed.shape[1] == 16
    x = images(2, 3, 32, 32)
    entered: list[Tensor] = []
    model.blocks[3].register_forward_pre_hook(lambda _m, args: entered.append(args[0]))
    y = model(x)
    h = model.patch_embed(x).flatten(2).transpose(1, 2) + model.pos_embed
    for block in model.blocks[:3]:
        h = block(h)
    torch.testing.assert_close(entered[0], torch.cat([model.cls_token.expand(2, 1, 24), h], dim=1))
    torch.testing.assert_close(y, model.norm(model.blocks[3](entered[0]))[:, 0])


@pytest.mark.parametrize("cls_layer", [0, 2, None])
def test_every_parameter_gets_a_gradient(cls_layer: int | None) -> None:
    model = small(cls_layer=cls_layer)
    model(images(2, 3, 32, 32)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_position_interpolation_keeps_planes_and_prefix() -> None:
    h, w = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
    ramp = (h + 10 * w).reshape(1, 36, 1)
    p = torch.cat([torch.full((1, 1, 1), 7.0), ramp], dim=1)
    y = interpolated(p, (6, 6), (12, 6), prefix=1)
    assert y.shape == (1, 73, 1)
    assert y[0, 0] == 7
    plane = y[0, 1:, 0].reshape(12, 6)
    torch.testing.assert_close(plane[4:8, 2], torch.tensor([21.75, 22.25, 22.75, 23.25]))  # away from the border
    assert interpolated(p, (6, 6), (6, 6), prefix=1) is p


def test_drop_path_drops_samples_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    drop = DropPath(0.25)
    x = torch.ones(4000, 2, 3)
    y = drop(x)
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert (y == y[:, :1, :1]).all()
    assert abs((y == 0).float().mean() - 0.25) < 0.03  # four standard errors
    assert torch.equal(drop.eval()(x), x)


def test_drop_path_rises_over_the_blocks() -> None:
    rates = [block.drop_path1.rate for block in small(drop_path=0.3).blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_default_patches() -> None:
    assert [vit_mini(size=s).patch for s in (32, 64, 96, 128, 224)] == [4, 8, 8, 16, 16]
    assert isinstance(vit_mini(), Tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 30}, "30 x 30 is not made of patches of 8 x 8"),
        ({"heads": 5}, "dim=24 is not divisible by heads=5"),
        ({"cls_layer": 4}, "0 to 3, got 4"),
        ({"drop_path": 1.0}, "got 1.0"),
    ],
)
def test_bad_arguments(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**options)


def test_image_that_patches_do_not_fill() -> None:
    with pytest.raises(ValueError, match="multiples of the patch, 8; got 32 x 30"):
        small()(torch.zeros(1, 3, 32, 30))
