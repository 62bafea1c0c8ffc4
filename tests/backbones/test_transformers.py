"""transformers' own models, tiny and with random weights; what is pooled is compared with their outputs."""

from pathlib import Path
from shutil import rmtree
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from reglet.backbones import Backbone, Tokens, Transformers, build, load_transformers
from reglet.export import export, load_encoder
from reglet.types import WrongKindError

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
IMAGE = {"image_size": 32, "patch_size": 8}
TEXT = {**TINY, "vocab_size": 50, "max_position_embeddings": 8}


def tiny(transformers: ModuleType, kind: str, **changed: Any) -> Any:
    config = getattr(transformers, f"{kind}Config")
    torch.manual_seed(0)
    if kind == "CLIP":
        found = config(vision_config=TINY | IMAGE, text_config=TEXT)
    elif kind in ("ResNet", "ConvNext"):
        found = config(**{"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], **changed})
    elif kind == "Swin":
        found = config(embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=2, image_size=32, patch_size=4)
    elif kind == "Bert":
        found = config(**TEXT)
    else:
        found = config(**{**TINY, **IMAGE, **changed})
    return transformers.AutoModel.from_config(found).eval()


def images(size: int | tuple[int, int] = 32, n: int = 3) -> Tensor:
    high, wide = (size, size) if isinstance(size, int) else size
    return torch.randn(n, 3, high, wide, generator=torch.Generator().manual_seed(1))


def _first(out: Any) -> Tensor:
    return out.last_hidden_state[:, 0]


def _pooled(out: Any) -> Tensor:
    return out.pooler_output.flatten(1)


def _mean(out: Any) -> Tensor:
    last = out.last_hidden_state
    return last.mean(1) if last.ndim == 3 else last.mean((2, 3))


@pytest.mark.parametrize(
    ("kind", "want", "before"),  # before: tokens that stand for no place; None: a map
    [
        ("ViT", _first, 1),  # not its pooler: a dense layer that most weights lack
        ("DeiT", _first, 2),
        ("Dinov2", _pooled, 1),
        ("Dinov2WithRegisters", _pooled, 5),
        ("DINOv3ViT", _pooled, 1),
        ("Beit", _pooled, 1),
        ("IJepa", _mean, 0),
        ("ViTMSN", _first, 1),
        ("CLIPVision", _pooled, 1),
        ("SiglipVision", _pooled, 0),
        ("Swin", _pooled, 0),
        ("ResNet", _pooled, None),
        ("ConvNext", _pooled, None),
    ],
)
@torch.no_grad()
def test_features_are_the_models_own(transformers: ModuleType, kind: str, want: Any, before: int | None) -> None:
    model = tiny(transformers, kind)
    x = images(64 if before is None else 32)
    net = Transformers(model, size=x.shape[-1]).eval()
    out = model(pixel_values=x)
    torch.testing.assert_close(net(x), want(out), rtol=0, atol=0)
    assert isinstance(net, Backbone)
    assert isinstance(net, Tokens)
    assert net.dim == want(out).shape[1]
    tokens, grid = net.tokens(x)
    last = out.last_hidden_state
    torch.testing.assert_close(tokens, last.flatten(2).mT if before is None else last[:, before:], rtol=0, atol=0)
    assert grid[0] * grid[1] == tokens.shape[1]


@torch.no_grad()
def test_pool_of_class_token_and_of_places(transformers: ModuleType) -> None:
    model, x = tiny(transformers, "Dinov2WithRegisters"), images()
    last = model(pixel_values=x).last_hidden_state
    torch.testing.assert_close(Transformers(model, pool="class").eval()(x), last[:, 0])
    torch.testing.assert_close(Transformers(model, pool="mean").eval()(x), last[:, 5:].mean(1))
    with pytest.raises(WrongKindError, match="has no class token"):
        Transformers(tiny(transformers, "IJepa"), pool="class")
    with pytest.raises(WrongKindError, match="a map of features and no class token"):
        Transformers(tiny(transformers, "ResNet"), size=64, pool="class")


@pytest.mark.parametrize("kind", ["ViT", "SiglipVision", "Dinov2"])
@torch.no_grad()
def test_positions_are_interpolated_for_images_of_another_size(transformers: ModuleType, kind: str) -> None:
    net = Transformers(tiny(transformers, kind), size=48).eval()
    tokens, grid = net.tokens(images((48, 64)))
    assert (grid, tokens.shape) == ((6, 8), (3, 48, 32))


def test_positions_that_do_not_take_the_size(transformers: ModuleType) -> None:
    model = tiny(transformers, "ViT", patch_size=16)
    with pytest.raises(ValueError, match=r"does not take images of 8 x 8: .* made for 32 x 32: give size=32"):
        Transformers(model, size=8)


def test_of_images_and_text_the_part_for_images(transformers: ModuleType, tmp_path: Path) -> None:
    model = tiny(transformers, "CLIP")
    model.save_pretrained(tmp_path)
    net, x = load_transformers(str(tmp_path)).eval(), images()
    with torch.no_grad():
        torch.testing.assert_close(net(x), model.vision_model(pixel_values=x).pooler_output, rtol=0, atol=0)
    assert not any("text" in name for name in net.state_dict())


def test_a_masked_autoencoder_masks_nothing(transformers: ModuleType, tmp_path: Path) -> None:
    tiny(transformers, "ViTMAE").save_pretrained(tmp_path)
    net, x = load_transformers(str(tmp_path)).eval(), images()
    tokens, grid = net.tokens(x)
    assert (grid, tokens.shape[1]) == ((4, 4), 16)
    torch.testing.assert_close(net(x), net(x), rtol=0, atol=0)
    moved = x.clone()
    moved[:, :, :8, :8] += 1.0  # the first place
    nearest = (net.tokens(moved)[0] - tokens).norm(dim=-1).argmax(1)
    assert nearest.eq(0).all(), "tokens stand in the order of their places"


@pytest.mark.parametrize("name", ["hf/{}", "{}"])
def test_loading_from_a_folder(transformers: ModuleType, tmp_path: Path, name: str) -> None:
    model = tiny(transformers, "ViT")
    transformers.ViTForImageClassification(model.config).save_pretrained(tmp_path)  # a head of two classes besides
    again = transformers.AutoModel.from_pretrained(tmp_path)
    spec = name.format(tmp_path)
    net = build(spec, size=32, pretrained=True) if spec.startswith("hf/") else load_transformers(spec)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(images()), _first(again.eval()(pixel_values=images())), rtol=0, atol=0)
    assert not any("pooler" in key or "classifier" in key for key in net.state_dict())
    random = build(f"hf/{tmp_path}", size=32)
    assert {k: v.shape for k, v in random.state_dict().items()} == {k: v.shape for k, v in net.state_dict().items()}
    assert not torch.equal(next(random.parameters()), next(net.parameters()))


def test_every_parameter_has_a_gradient(transformers: ModuleType, tmp_path: Path) -> None:
    tiny(transformers, "ViT").save_pretrained(tmp_path)
    net = load_transformers(str(tmp_path)).train()
    net(images()).square().sum().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None] == []


def test_weights_that_do_not_fit_are_listed(transformers: ModuleType, tmp_path: Path) -> None:
    tiny(transformers, "ViT").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    gone = next(key for key in weights if key.endswith("layernorm.weight"))
    save_file({k: v for k, v in weights.items() if k != gone}, file, {"format": "pt"})
    with pytest.raises(ValueError, match=f"do not fit ViTModel: missing: {gone}"):
        load_transformers(str(tmp_path))
    deep = next(key for key in weights if ".1." in key)
    save_file({**weights, deep.replace(".1.", ".7."): weights[deep].clone()}, file, {"format": "pt"})
    with pytest.raises(ValueError, match=r"extra: .*\.7\."):
        load_transformers(str(tmp_path))


def test_what_is_not_one_vector_or_a_map_of_tokens(transformers: ModuleType) -> None:
    with pytest.raises(WrongKindError, match="BertModel takes input_ids, and not images"):
        Transformers(tiny(transformers, "Bert"))
    with pytest.raises(TypeError, match="expected a PreTrainedModel of transformers, got Linear"):
        Transformers(nn.Linear(2, 2))
    inner = transformers.ResNetConfig(hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"])
    config = transformers.DetrConfig(
        use_timm_backbone=False, backbone=None, backbone_config=inner, d_model=8, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=1, decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8,
    )  # fmt: skip
    with pytest.raises(WrongKindError, match="neither one vector nor a map of tokens: it decodes queries"):
        Transformers(transformers.DetrModel(config))


def test_an_output_of_another_shape(transformers: ModuleType) -> None:
    class Odd(transformers.ViTModel):  # type: ignore[name-defined,misc]
        def forward(self, pixel_values: Tensor, **_: Any) -> dict[str, Tensor]:
            return {"logits": pixel_values.new_zeros(len(pixel_values), 7)}

    with pytest.raises(WrongKindError, match=r"features of Odd are neither .* got \{'logits': \(1, 7\)\}"):
        Transformers(Odd(transformers.ViTConfig(**TINY, **IMAGE)))


def test_a_name_that_is_not_there(transformers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # or it tries for half a minute
    with pytest.raises(ValueError, match=r"hf/nobody/nothing could not .*bring the folder here, and give hf/FOLDER"):
        load_transformers("nobody/nothing")
    with pytest.raises(ValueError, match="no folder of a vision model that transformers saved with safetensors"):
        load_transformers(str(tmp_path))


def test_channels_that_the_weights_do_not_take(transformers: ModuleType, tmp_path: Path) -> None:
    tiny(transformers, "ViT").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="takes images of 3 channels, and these have 1"):
        load_transformers(str(tmp_path), in_channels=1)
    net = load_transformers(str(tmp_path), in_channels=1, pretrained=False)
    assert net(torch.zeros(2, 1, 32, 32)).shape == (2, 32)


@pytest.mark.parametrize("kind", ["ViT", "Dinov2", "IJepa", "ConvNext", "CLIP", "Swin"])
def test_exported_it_loads_again_without_its_source(transformers: ModuleType, tmp_path: Path, kind: str) -> None:
    saved, size = tmp_path / "saved", 64 if kind == "ConvNext" else 32 if kind == "Swin" else 48
    tiny(transformers, kind).save_pretrained(saved)
    net = build(f"hf/{saved}", size=size, pretrained=True).eval()
    card = export(
        net, tmp_path / "out", name=f"hf/{saved}", size=size, in_channels=3, card={"model": {"pretrained": True}}
    )
    assert card["verified"] == {"by": "the code above", "largest relative difference": pytest.approx(0, abs=1e-5)}
    rmtree(saved)
    again, _, _ = load_encoder(tmp_path / "out")
    torch.testing.assert_close(again(images(size)), net(images(size)))
