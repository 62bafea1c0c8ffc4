"""ResNets.  He et al., CVPR 2016, arXiv:1512.03385.

Parameters carry torchvision's names (`conv1`, `layer1.0.bn2`, `layer2.0.downsample.0`, `fc`), so that published
state_dicts load, and the stride of a bottleneck sits on its 3 x 3 convolution, as there ("v1.5").
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.protocol import Grid, map_tokens

Stem = Literal["imagenet", "cifar"]


class BasicBlock(nn.Module):
    """relu(x + bn(conv(relu(bn(conv(x))))))"""

    expansion = 1

    def __init__(self, c_in: int, width: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = conv3x3(c_in, width, stride=stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(c_in, width, stride=stride)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c2 h2 w2"]:
        y = torch.relu_(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return torch.relu_(y)


class Bottleneck(nn.Module):
    """1 x 1 to `width`, 3 x 3, 1 x 1 to 4 `width`, and the shortcut."""

    expansion = 4

    def __init__(self, c_in: int, width: int, *, stride: int = 1) -> None:
        super().__init__()
        c_out = width * self.expansion
        self.conv1 = nn.Conv2d(c_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width, stride=stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, c_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(c_out)
        self.downsample = shortcut(c_in, c_out, stride=stride)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c2 h2 w2"]:
        y = torch.relu_(self.bn1(self.conv1(x)))
        y = torch.relu_(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return torch.relu_(y)


class ResNet(nn.Module):
    """Images -> globally pooled features (n, dim); with `num_classes`, -> logits.

    depths, widths: blocks in each stage and their width, one entry per stage `layer1`, `layer2`, ...; each stage
        after the first halves the grid.
    stem: "imagenet" is a 7 x 7 convolution of stride 2 and a max-pool (together a quarter of the grid), "cifar" one
        3 x 3 convolution that keeps it.

    >>> import torch
    >>> resnet8()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        *,
        depths: Sequence[int],
        widths: Sequence[int] = (64, 128, 256, 512),
        stem: Stem = "imagenet",
        in_channels: int = 3,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        if len(depths) != len(widths) or not depths or min(depths) < 1:
            raise ValueError(f"depths and widths need one entry >= 1 per stage, got {depths!r} and {widths!r}")
        if stem not in ("imagenet", "cifar"):
            raise ValueError(f"stem is 'imagenet' or 'cifar', got {stem!r}")
        self.stem = stem
        self.conv1 = (
            nn.Conv2d(in_channels, widths[0], 7, stride=2, padding=3, bias=False)
            if stem == "imagenet"
            else conv3x3(in_channels, widths[0])
        )
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.stages: list[str] = []
        c = widths[0]
        for i, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            blocks = nn.Sequential()
            for j in range(depth):
                blocks.append(block(c, width, stride=2 if i > 0 and j == 0 else 1))
                c = width * block.expansion
            self.stages.append(f"layer{i + 1}")
            self.add_module(self.stages[-1], blocks)
        self.dim = c
        self.fc = nn.Linear(c, num_classes) if num_classes else nn.Identity()
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward_map(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h2 w2"]:
        """The feature map before pooling."""
        x = torch.relu_(self.bn1(self.conv1(x)))
        if self.stem == "imagenet":
            x = nn.functional.max_pool2d(x, 3, stride=2, padding=1)
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        return x

    def tokens(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Grid]:
        """The places of the feature map before pooling, row by row, and the grid that they fill."""
        return map_tokens(self.forward_map(x))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        y: Tensor = self.fc(self.forward_map(x).mean(dim=(2, 3)))
        return y


def resnet8(*, stem: Stem = "cifar", in_channels: int = 3, num_classes: int = 0) -> ResNet:
    """One block of 16, 32 and 64 channels: 77 thousand parameters, for experiments of minutes on a CPU.

    He et al.'s section 4.2 with n = 1, except that projections, not zero-padding, bridge a change of width.

    >>> sum(weight.numel() for weight in resnet8().parameters())
    77392
    """
    return _small(1, stem=stem, in_channels=in_channels, num_classes=num_classes)


def resnet14(*, stem: Stem = "cifar", in_channels: int = 3, num_classes: int = 0) -> ResNet:
    """Two blocks of 16, 32 and 64 channels each.

    >>> resnet14().dim, resnet14(num_classes=10)(torch.zeros(2, 3, 32, 32)).shape
    (64, torch.Size([2, 10]))
    """
    return _small(2, stem=stem, in_channels=in_channels, num_classes=num_classes)


def resnet18(*, stem: Stem = "imagenet", in_channels: int = 3, num_classes: int = 0) -> ResNet:
    """Two blocks of 64, 128, 256 and 512 channels each: 11.2 million parameters.

    >>> resnet18(stem="cifar").dim
    512
    """
    return ResNet(BasicBlock, depths=(2, 2, 2, 2), stem=stem, in_channels=in_channels, num_classes=num_classes)


def resnet50(*, stem: Stem = "imagenet", in_channels: int = 3, num_classes: int = 0) -> ResNet:
    """3, 4, 6 and 3 bottleneck blocks: 23.5 million parameters.

    >>> resnet50().dim
    2048
    """
    return ResNet(Bottleneck, depths=(3, 4, 6, 3), stem=stem, in_channels=in_channels, num_classes=num_classes)


def _small(depth: int, *, stem: Stem, in_channels: int, num_classes: int) -> ResNet:
    return ResNet(
        BasicBlock,
        depths=(depth,) * 3,
        widths=(16, 32, 64),
        stem=stem,
        in_channels=in_channels,
        num_classes=num_classes,
    )


def conv3x3(c_in: int, c_out: int, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False)


def shortcut(c_in: int, c_out: int, *, stride: int) -> nn.Sequential | None:
    """The projection that bridges a change of shape; None where the identity does."""
    if stride == 1 and c_in == c_out:
        return None
    return nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False), nn.BatchNorm2d(c_out))
