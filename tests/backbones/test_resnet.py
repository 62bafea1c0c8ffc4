from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from reglet.backbones.resnet import BasicBlock, ResNet, resnet8, resnet14, resnet18, resnet50


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def randomised(model: nn.Module) -> nn.Module:
    """BatchNorm away from its initial state, where a swapped layer would go unnoticed."""
    torch.manual_seed(0)
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.normal_(m.bias, std=0.2)
            m.running_mean.normal_(std=0.2)
            m.running_var.uniform_(0.5, 1.5)
    return model


@pytest.mark.parametrize(
    ("build", "classes", "parameters"),
    [(resnet18, 1000, 11_689_512), (resnet50, 1000, 25_557_032), (resnet50, 0, 23_508_032), (resnet18, 0, 11_176_512)],
)
def test_parameter_counts_are_the_published_ones(build, classes: int, parameters: int) -> None:
    assert size(build(num_classes=classes)) == parameters


def test_parameter_count_of_the_small_one_by_hand() -> None:
    def block(i: int, o: int) -> int:
        bridge = i * o + 2 * o if i != o else 0
        return 9 * i * o + 9 * o * o + 4 * o + bridge

    stem = 9 * 3 * 16 + 2 * 16
    assert size(resnet8()) == stem + block(16, 16) + block(16, 32) + block(32, 64)
    assert size(resnet14(num_classes=10)) == size(resnet8()) + block(16, 16) + block(32, 32) + block(64, 64) + 650


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_equals_torchvision_with_its_weights(torchvision: ModuleType, name: str, mode: str) -> None:
    theirs = randomised(getattr(torchvision, name)(weights=None))
    ours = {"resnet18": resnet18, "resnet50": resnet50}[name](num_classes=1000)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(2, 3, 64, 64)
    a, b = (m.train(mode == "train")(x) for m in (ours, theirs))
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(ours.bn1.running_mean, theirs.bn1.running_mean)


@pytest.mark.parametrize("build", [resnet8, resnet14, resnet18, resnet50])
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_shapes(build, stem: str) -> None:
    model = build(stem=stem, in_channels=1).eval()
    x = torch.randn(2, 1, 64, 48)
    stages = len(model.stages)
    shrink = 2 ** (stages - 1) * (4 if stem == "imagenet" else 1)
    maps = model.forward_map(x)
    assert maps.shape == (2, model.dim, -(-64 // shrink), -(-48 // shrink))
    torch.testing.assert_close(model(x), maps.mean(dim=(2, 3)))


def test_stages_halve_the_grid_once_each() -> None:
    grids: dict[str, tuple[int, ...]] = {}

    def read(name: str):
        def hook(_m: nn.Module, _x: tuple[Tensor, ...], y: Tensor) -> None:
            grids[name] = tuple(y.shape[1:])

        return hook

    model = resnet14()
    for name, module in model.named_modules():
        if isinstance(module, BasicBlock):
            module.register_forward_hook(read(name))
    model(torch.randn(2, 3, 32, 32))
    assert grids == {
        "layer1.0": (16, 32, 32),
        "layer1.1": (16, 32, 32),
        "layer2.0": (32, 16, 16),
        "layer2.1": (32, 16, 16),
        "layer3.0": (64, 8, 8),
        "layer3.1": (64, 8, 8),
    }


@pytest.mark.parametrize("build", [resnet8, resnet18])
def test_every_parameter_gets_a_gradient(build) -> None:
    model = build(stem="cifar", num_classes=3)
    model(torch.randn(4, 3, 16, 16)).square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="one entry >= 1 per stage"):
        ResNet(BasicBlock, depths=(1, 1), widths=(16, 32, 64))
    with pytest.raises(ValueError, match="one entry >= 1 per stage"):
        ResNet(BasicBlock, depths=(1, 0), widths=(16, 32))
