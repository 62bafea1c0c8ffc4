import builtins
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from reglet.backbones import Adapter, Backbone, ConvNet, Timm, Tokens, build, resnet8
from reglet.backbones.adapter import grid_of
from reglet.backbones.build import NAMES
from reglet.backbones.protocol import dim_of


class Gives(nn.Module):
    """A network with a given output, which forgets nothing that a dry run could leave behind."""

    def __init__(self, shape: tuple[int, ...], wrap=lambda y: y) -> None:
        super().__init__()
        self.bn, self.shape, self.wrap = nn.BatchNorm2d(3), shape, wrap

    def forward(self, x: Tensor):
        self.bn(x)
        return self.wrap(counted(self.shape).expand(len(x), *self.shape))


def counted(shape: tuple[int, ...]) -> Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)


@pytest.mark.parametrize("shape", [(5,), (6, 5), (5, 2, 3)])
@pytest.mark.parametrize("wrap", [lambda y: y, lambda y: (y, None), lambda y: {"last": y}])
def test_dim_and_pooling_of_any_output(shape: tuple[int, ...], wrap) -> None:
    model = Gives(shape, wrap)
    net = Adapter(model, size=(8, 12))
    assert net.dim == 5
    assert model.training
    assert model.bn.num_batches_tracked == 0
    x = torch.zeros(2, 3, 8, 12)
    y = counted(shape)
    want = y if len(shape) == 1 else y.mean(0) if len(shape) == 2 else y.mean((1, 2))
    torch.testing.assert_close(net(x), want.expand(2, 5))
    if len(shape) == 1:
        with pytest.raises(TypeError, match=r"vectors \(2, 5\), and no tokens"):
            net.tokens(x)
        return
    tokens, grid = net.tokens(x)
    assert grid == (2, 3)
    torch.testing.assert_close(tokens[1], y if len(shape) == 2 else y.flatten(1).T)


def test_cls_and_prefix() -> None:
    net = Adapter(Gives((5, 4)), size=8, pool="first", prefix=1)
    x = torch.zeros(2, 3, 8, 8)
    torch.testing.assert_close(net(x)[0], torch.arange(1.0, 5))
    tokens, grid = net.tokens(x)
    assert (grid, tokens[0, 0, 0].item()) == ((2, 2), 5.0)
    mean = Adapter(Gives((5, 4)), size=8, prefix=1)
    torch.testing.assert_close(mean(x)[0], torch.arange(5.0, 21).view(4, 4).mean(0))


def test_grid_of_tokens() -> None:
    assert grid_of(196, image=(224, 224)) == (14, 14)
    assert grid_of(24, image=(32, 48)) == (4, 6)
    with pytest.raises(ValueError, match=r"197 tokens .* prefix=1"):
        grid_of(197, image=(224, 224))


def test_output_that_is_no_feature() -> None:
    with pytest.raises(TypeError, match=r"expected from Gives .* got shape \(1, 1, 1, 1, 1\)"):
        Adapter(Gives((1, 1, 1, 1)), size=8)


def test_what_has_no_dim_is_told_of_the_adapter() -> None:
    with pytest.raises(TypeError, match=r"Linear has None\. reglet\.backbones\.Adapter"):
        dim_of(nn.Linear(2, 2))


@pytest.mark.parametrize("net", [ConvNet(), resnet8()])
def test_tokens_of_a_convolutional_net_pool_to_its_features(net: nn.Module) -> None:
    x = torch.randn(2, 3, 32, 24)
    net.eval()
    tokens, (h, w) = net.tokens(x)
    assert tokens.shape == (2, h * w, net.dim)
    torch.testing.assert_close(tokens.mean(1), net(x))
    torch.testing.assert_close(tokens[:, w + 2], net.forward_map(x)[:, :, 1, 2])


@pytest.mark.parametrize(
    "name", ["resnet18", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mobilenetv3_small_050"]
)
def test_timm(timm: ModuleType, name: str) -> None:
    net = build(f"timm/{name}", size=64).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        y, (tokens, (h, w)) = net(x), net.tokens(x)
    assert y.shape == (2, net.dim)
    assert tokens.shape[:2] == (2, h * w)
    assert isinstance(net, Tokens)
    assert isinstance(net, Backbone)
    options = {"img_size": 64} if "vit" in name or "swin" in name else {}
    plain = timm.create_model(name, num_classes=0, **options).eval()
    plain.load_state_dict(net.model.state_dict(), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(plain(x), y)
        if name == "vit_tiny_patch16_224":
            torch.testing.assert_close(tokens, plain.forward_features(x)[:, 1:])
        if name == "resnet18":
            torch.testing.assert_close(tokens.mean(1), y)


def test_timm_name_that_does_not_exist(timm: ModuleType) -> None:
    with pytest.raises(LookupError, match=r"no model 'resnet19'.*resnet1"):
        Timm("resnet19")


def test_timm_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args, **options):
        if name == "timm":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"timm/resnet18 needs timm: pip install 'reglet\[timm\]'"):
        build("timm/resnet18")


@pytest.mark.parametrize("name", NAMES)
def test_build_by_name(name: str) -> None:
    with torch.device("meta"):
        net = build(name, size=32, in_channels=1)
        assert net(torch.zeros(2, 1, 32, 32)).shape == (2, net.dim)


def test_build_says_what_there_is() -> None:
    with pytest.raises(LookupError, match=r"'vit_tinny'\. Did you mean 'vit_tiny'\? There are convnet, .*timm/NAME"):
        build("vit_tinny")
    with pytest.raises(ValueError, match="resnet18 has no patch, drop_path"):
        build("resnet18", patch=4, drop_path=0.1)
